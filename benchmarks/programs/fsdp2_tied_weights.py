"""FSDP2 of a model whose head is its embedding: tied before the root is sharded, in the root's own group.

truth: GO
why: the shared parameter is one of the root's, and is gathered once for both.
"""

import torch
import torch.distributed as dist
from start import start
from torch.distributed.fsdp import fully_shard


class Language(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(2)])
        self.head = torch.nn.Linear(16, 50, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + block(x).relu()
        return self.head(x)


device = start()
model = Language().to(device)
model.head.weight = model.embed.weight
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(8):
    tokens = torch.randint(0, 50, (2, 8), device=device)
    logits = model(tokens)
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
