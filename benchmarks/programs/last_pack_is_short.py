"""Tokens are packed into batches of 4 x 16; the last one has no more than 48 of them.

truth: NO-GO
says: shape .* is invalid for input of size
why: view(4, 16) of 48 tokens, at the last of 26 batches.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel

ROWS, LENGTH = 4, 16
device = start()
model = torch.nn.Sequential(torch.nn.Embedding(100, 16), torch.nn.Linear(16, 100))
model = DistributedDataParallel(model.to(device))
optimizer = torch.optim.AdamW(model.parameters())
stream = torch.randint(0, 100, (25 * ROWS * LENGTH + 48,))
for block in stream.split(ROWS * LENGTH):
    tokens = block.view(ROWS, LENGTH).to(device)
    logits = model(tokens)
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
