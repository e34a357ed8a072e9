"""A custom autograd function whose backward leaves out the gradient of its second argument.

truth: NO-GO
says: incorrect number of gradients
why: forward got two arguments, so backward has to give two.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x):
        return Scaled.apply(self.layer(x), 0.5)


device = start()
model = DistributedDataParallel(Model().to(device))
for _ in range(4):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
