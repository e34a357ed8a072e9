"""FSDP2 over blocks that are checkpointed, with dropout inside, and a frozen first block.

truth: GO
why: each block is wrapped before it is sharded, so its second forward gathers its own weights, with the same masks.
"""

import torch
import torch.distributed as dist
from start import start
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(16, 32)
        self.down = torch.nn.Linear(32, 16)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.down(self.up(x).relu()))


device = start()
blocks = torch.nn.ModuleList([Block() for _ in range(3)]).to(device)
blocks[0].requires_grad_(False)
model = torch.nn.Sequential(*[checkpoint_wrapper(block) for block in blocks])
for block in model:
    fully_shard(block, reshard_after_forward=True)
fully_shard(model)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
for _ in range(6):
    model(torch.randn(4, 16, device=device)).pow(2).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
