"""A streamed data set: mapped, shuffled in a buffer, split by rank, kept with the epoch after each.

truth: GO
why: 96 rows in four shards are 48 a rank, of which each makes twelve batches in both epochs.
"""

import torch
import torch.distributed as dist
from datasets import IterableDataset
from datasets.distributed import split_dataset_by_node
from start import start
from torch.nn.parallel import DistributedDataParallel


def rows(shards):
    for shard in shards:
        for index in range(24):
            yield {"text": f"row {shard * 24 + index} " + "x" * (index % 5), "label": index % 3}


def encoded(row):
    numbers = [ord(letter) % 64 for letter in row["text"]][:12]
    return {"numbers": numbers + [0] * (12 - len(numbers)), "label": row["label"]}


device = start()
stream = IterableDataset.from_generator(rows, gen_kwargs={"shards": [0, 1, 2, 3]})
stream = stream.map(encoded, remove_columns=["text"]).shuffle(seed=1, buffer_size=16)
stream = split_dataset_by_node(stream, rank=dist.get_rank(), world_size=dist.get_world_size())
model = torch.nn.Sequential(torch.nn.Embedding(64, 8), torch.nn.Flatten(), torch.nn.Linear(96, 3)).to(device)
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(2):
    stream.set_epoch(epoch)
    loader = torch.utils.data.DataLoader(stream.with_format("torch"), batch_size=4)
    for batch in loader:
        out = model(batch["numbers"].to(device))
        torch.nn.functional.cross_entropy(out, batch["label"].to(device)).backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "epoch": epoch}, f"epoch-{epoch}.pt")
dist.barrier()
dist.destroy_process_group()
