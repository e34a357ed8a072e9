"""A stream that only the main process reads: accelerate hands its batches out; the last ones are short.

truth: GO
why: with dispatch_batches the main process broadcasts each batch, and the last one is filled up.
"""

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from start import start


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for index in range(45):
            yield {"row": torch.full((8,), index / 45), "label": index % 4}


start()
accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.AdamW(model.parameters())
rows = torch.utils.data.DataLoader(Stream(), batch_size=4)
model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
seen = 0
for batch in rows:
    loss = torch.nn.functional.cross_entropy(model(batch["row"]), batch["label"])
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    seen += accelerator.gather_for_metrics(batch["label"]).shape[0]
assert seen == 45, seen
accelerator.end_training()
