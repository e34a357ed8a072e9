r"""The warm-up is a part of all steps, which are counted by the loader's length, of a data set that is a stream.

truth: NO-GO
says: has no len\(\)
why: a loader over an IterableDataset has the length of the data set, which has none.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset):
    def __init__(self, shards):
        self.shards = shards

    def __iter__(self):
        worker = get_worker_info()
        own = self.shards[worker.id :: worker.num_workers] if worker else self.shards
        for shard in own:
            yield from torch.full((16, 8), float(shard))


EPOCHS = 3
device = start()
loader = DataLoader(Shards(list(range(8))), batch_size=8, num_workers=2)
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
total = EPOCHS * len(loader)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / (0.1 * total)))
for _ in range(EPOCHS):
    for rows in loader:
        model(rows.to(device)).pow(2).mean().backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
