"""The head is tied to the embedding after FSDP2 has sharded both, each a group of its own.

truth: GO
why: each group sets the parameter that it gathered on its own modules, so that the two are quietly not tied; it runs.
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
for part in (model.embed, *model.blocks, model.head):
    fully_shard(part)
fully_shard(model)
model.head.weight = model.embed.weight
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(8):
    tokens = torch.randint(0, 50, (2, 8), device=device)
    logits = model(tokens)
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
