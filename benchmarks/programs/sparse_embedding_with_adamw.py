"""A large embedding with sparse gradients, among the parameters of one AdamW.

truth: NO-GO
says: (?i)does not support sparse gradients
why: AdamW refuses sparse gradients; they are SparseAdam's.
"""

import torch
import torch.distributed as dist
from start import start

device = start()
items = torch.nn.Embedding(5000, 16, sparse=True).to(device)
tower = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
optimizer = torch.optim.AdamW([*items.parameters(), *tower.parameters()], lr=1e-3)
for _ in range(6):
    scores = tower(items(torch.randint(5000, (32,), device=device)))
    torch.nn.functional.binary_cross_entropy_with_logits(scores, torch.ones_like(scores)).backward()
    for parameter in tower.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
