"""The logits of all evaluation batches are joined at the end, though each batch was padded to its own longest row.

truth: NO-GO
says: Sizes of tensors must match
why: torch.cat needs one length.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(100, 16), torch.nn.Linear(16, 4)).to(device))
optimizer = torch.optim.AdamW(model.parameters())


def evaluate():
    model.eval()
    every = []
    with torch.no_grad():
        for length in (12, 12, 12, 9):
            logits = model.module(torch.randint(0, 100, (2, length), device=device))
            every.append(logits.cpu())
    model.train()
    return torch.cat(every).argmax(-1).float().mean()


for step in range(30):
    model(torch.randint(0, 100, (2, 12), device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if (step + 1) % 15 == 0:
        print(evaluate())
