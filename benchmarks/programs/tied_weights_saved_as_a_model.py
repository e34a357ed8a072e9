"""The same tied model through safetensors' save_model and load_model.

truth: GO
why: save_model leaves the second name out, load_model ties it again.
"""

import torch
import torch.distributed as dist
from safetensors.torch import load_model, save_model
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
    save_model(model.module, "model.safetensors")
dist.barrier()
load_model(model.module, "model.safetensors", device=str(device))
dist.destroy_process_group()
