"""A batch sampler that puts rows of about one length together, cut into as many batches for each rank.

truth: GO
why: every rank orders the rows by the same seed, and drops what is left over.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler


class Texts(Dataset):
    def __init__(self):
        lengths = torch.randint(3, 40, (203,), generator=torch.Generator().manual_seed(3))
        self.rows = [torch.arange(length) % 50 + 1 for length in lengths.tolist()]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class ByLength(Sampler):
    def __init__(self, rows, most_tokens):
        self.rows, self.most_tokens, self.epoch = rows, most_tokens, 0

    def batches(self):
        chance = torch.Generator().manual_seed(self.epoch)
        noise = torch.rand(len(self.rows), generator=chance).tolist()
        order = sorted(range(len(self.rows)), key=lambda index: len(self.rows[index]) + noise[index] * 6)
        batches, batch, longest = [], [], 0
        for index in order:
            longest = max(longest, len(self.rows[index]))
            if batch and longest * (len(batch) + 1) > self.most_tokens:
                batches.append(batch)
                batch, longest = [], len(self.rows[index])
            batch.append(index)
        batches.append(batch)
        return [batches[place] for place in torch.randperm(len(batches), generator=chance).tolist()]

    def __iter__(self):
        world, rank = dist.get_world_size(), dist.get_rank()
        batches = self.batches()
        whole = len(batches) // world * world
        return iter(batches[rank:whole:world])

    def __len__(self):
        return len(self.batches()) // dist.get_world_size()


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


device = start()
sampler = ByLength(Texts(), most_tokens=240)
loader = DataLoader(sampler.rows, batch_sampler=sampler, collate_fn=padded, num_workers=2)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64)).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(3):
    sampler.epoch = epoch
    for tokens in loader:
        tokens = tokens.to(device)
        logits = model(tokens)[:, :-1]
        torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], ignore_index=0).backward()
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
