"""A model whose head is its embedding is saved with safetensors' save_file.

truth: NO-GO
says: share memory
why: save_file refuses tensors that share memory.
"""

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from start import start
from torch.nn.parallel import DistributedDataParallel


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.head = torch.nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens))


device = start()
model = DistributedDataParallel(Tied().to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(20):
    tokens = torch.randint(0, 50, (2, 8), device=device)
    torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 0:
    save_file(model.module.state_dict(), "model.safetensors")
dist.barrier()
