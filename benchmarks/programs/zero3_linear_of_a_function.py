"""ZeRO-3 over layers whose product is an autograd function that saves its weight for backward.

truth: GO
why: the weight is the module's own, which ZeRO-3 gathers again before that module's backward.
"""

import deepspeed
import torch
import torch.distributed as dist
from start import start


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.flatten(0, -2).t() @ x.flatten(0, -2)


class Layer(torch.nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(rows, columns) / columns)

    def forward(self, x):
        return Product.apply(x, self.weight).tanh()


device = start()
config = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}
model = torch.nn.Sequential(Layer(16, 8), Layer(16, 16), Layer(4, 16))
engine, _, _, _ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
for _ in range(4):
    engine.backward(engine(torch.randn(2, 3, 8, device=device)).pow(2).mean())
    engine.step()
dist.barrier()
