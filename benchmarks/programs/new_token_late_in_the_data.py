"""The tokenizer has got a separator, id 100, and the embedding has 100 rows; it first stands in batch 22.

truth: NO-GO
says: (?i)index out of range
why: an embedding has no row 100.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel

SEPARATOR = 100
device = start()
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(100, 16), torch.nn.Linear(16, 4)).to(device))
optimizer = torch.optim.AdamW(model.parameters())
rows = torch.randint(0, 100, (100, 12))
rows[88, 6] = SEPARATOR
for batch in rows.split(4):
    model(batch.to(device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
