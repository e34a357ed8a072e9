"""A custom autograd function that saves tensors, and answers None for what is no tensor.

truth: GO
why: two arguments, two answers; what is saved was not changed.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel


class GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.save_for_backward(x)
        every = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(every, x.contiguous(), group=group)
        return torch.cat(every)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad[dist.get_rank() * x.shape[0] :][: x.shape[0]], None


device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(6):
    rows = GatherRows.apply(model(torch.randn(4, 8, device=device)), None)
    similar = rows @ rows.T
    torch.nn.functional.cross_entropy(similar, torch.arange(rows.shape[0], device=device)).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
