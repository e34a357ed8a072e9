"""Each rank packs its own half of the rows into batches of at most 240 tokens, in the order of a seed of its own.

truth: NO-GO
says: (?i)connection|timed out|timeout
why: how many batches come of it depends on the order and the rows, so one rank has a step that the other has not.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


class ByTokens:
    def __init__(self, lengths, most_tokens, rank, world):
        self.lengths, self.most_tokens, self.rank, self.world = lengths, most_tokens, rank, world

    def __iter__(self):
        own = list(range(self.rank, len(self.lengths), self.world))
        chance = torch.Generator().manual_seed(17 + self.rank)
        batch = []
        for place in torch.randperm(len(own), generator=chance).tolist():
            longest = max(self.lengths[index] for index in [*batch, own[place]])
            if batch and longest * (len(batch) + 1) > self.most_tokens:
                yield batch
                batch = []
            batch.append(own[place])
        yield batch


device = start()
lengths = torch.randint(3, 40, (240,), generator=torch.Generator().manual_seed(8)).tolist()
rows = [torch.arange(length) % 50 + 1 for length in lengths]
loader = DataLoader(
    rows,
    batch_sampler=ByTokens(lengths, 240, dist.get_rank(), dist.get_world_size()),
    collate_fn=lambda some: torch.nn.utils.rnn.pad_sequence(some, batch_first=True),
)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64)).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    for tokens in loader:
        tokens = tokens.to(device)
        logits = model(tokens)[:, :-1]
        torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], ignore_index=0).backward()
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
