"""Rows are cut or padded to 32 tokens by the preparation, which forgot to pad the short ones of the last file.

truth: NO-GO
says: stack expects each tensor to be equal size
why: the default collator stacks the rows of a batch, and one near the end has 9 tokens.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Rows(Dataset):
    def __init__(self):
        lengths = [64] * 150 + [9, 64, 20, 64]
        self.rows = [{"input_ids": torch.arange(length)[:32] % 60, "label": length % 3} for length in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(64, 16)
        self.head = torch.nn.Linear(16, 3)

    def forward(self, input_ids):
        return self.head(self.words(input_ids).mean(1))


device = start()
rows = Rows()
sampler = DistributedSampler(rows, shuffle=False)
loader = DataLoader(rows, batch_size=4, sampler=sampler)
model = DistributedDataParallel(Model().to(device))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch in loader:
        logits = model(batch["input_ids"].to(device))
        torch.nn.functional.cross_entropy(logits, batch["label"].to(device)).backward()
        optimizer.step()
        optimizer.zero_grad()
