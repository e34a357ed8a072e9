"""Reentrant checkpointing of blocks behind a frozen embedding: what the blocks are given needs no gradient.

truth: NO-GO
says: does not require grad
why: the reentrant kind records nothing then, so the loss has no graph.
"""

import torch
from start import start
from torch.utils.checkpoint import checkpoint

device = start()
embedding = torch.nn.Embedding(100, 16).to(device).requires_grad_(False)
block = torch.nn.Linear(16, 16).to(device)
optimizer = torch.optim.AdamW(block.parameters())
for _ in range(4):
    tokens = torch.randint(0, 100, (2, 8), device=device)
    hidden = checkpoint(block, embedding(tokens), use_reentrant=True)
    hidden.pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
