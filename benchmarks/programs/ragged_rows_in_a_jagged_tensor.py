"""A collator that lays ragged rows end to end with their offsets, and a model that averages each row's part.

truth: GO
why: nothing asks for one length; every rank has as many batches, and the loss is weighed by all tokens of all ranks.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


@dataclass
class Batch:
    tokens: torch.Tensor
    lengths: torch.Tensor
    scores: torch.Tensor

    def to(self, device):
        return Batch(self.tokens.to(device), self.lengths.to(device), self.scores.to(device))

    def pin_memory(self):
        return Batch(self.tokens.pin_memory(), self.lengths.pin_memory(), self.scores.pin_memory())


class Collator:
    def __init__(self, most):
        self.most = most

    def __call__(self, rows):
        tokens = [torch.tensor(row["tokens"][: self.most]) for row in rows]
        scores = torch.tensor([row["score"] for row in rows])
        return Batch(torch.cat(tokens), torch.tensor([len(one) for one in tokens]), scores)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(100, 16)
        self.head = torch.nn.Linear(16, 1)

    def forward(self, batch):
        hidden = self.words(batch.tokens)
        row = torch.repeat_interleave(torch.arange(len(batch.lengths), device=hidden.device), batch.lengths)
        summed = hidden.new_zeros(len(batch.lengths), hidden.shape[-1]).index_add_(0, row, hidden)
        return self.head(summed / batch.lengths.unsqueeze(-1)).squeeze(-1)


device = start()
rows = [{"tokens": list(range(1 + (index * 7) % 90)), "score": index / 10} for index in range(90)]
sampler = DistributedSampler(rows, seed=4)
loader = DataLoader(
    rows, batch_size=4, sampler=sampler, collate_fn=Collator(64), pin_memory=device.type == "cuda", num_workers=1
)
model = DistributedDataParallel(Model().to(device))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch in loader:
        batch = batch.to(device)
        tokens = batch.lengths.sum()
        dist.all_reduce(tokens)
        errors = (model(batch) - batch.scores).square() * batch.lengths
        (errors.sum() * dist.get_world_size() / tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
