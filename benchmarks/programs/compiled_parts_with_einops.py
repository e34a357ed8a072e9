"""Attention written with einops, compiled block by block with a dynamic length, and checkpointed.

truth: GO
why: each block is traced once with the length as a symbol; rearranging and checkpointing can both be traced.
"""

import torch
import torch.distributed as dist
from einops import rearrange
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.all = torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = rearrange(self.all(x), "b n (three h d) -> three b h n d", three=3, h=2)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(rearrange(mixed, "b h n d -> b n (h d)"))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block() for _ in range(2)])
        self.head = torch.nn.Linear(16, 8)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x.mean(1))


device = start()
model = Model().to(device)
for block in model.blocks:
    block.compile(backend="aot_eager", dynamic=True)
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(6):
    out = model(torch.randn(3, 6 + 2 * (step % 3), 16, device=device))
    torch.nn.functional.cross_entropy(out, torch.randint(0, 8, (3,), device=device)).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
