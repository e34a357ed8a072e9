"""A model of patches, trained on pictures of 16 pixels, and evaluated at the end on some of 20.

truth: NO-GO
says: EinopsError
why: 20 pixels can't be divided into patches of 8, which einops refuses.
"""

import torch
import torch.distributed as dist
from einops.layers.torch import Rearrange
from start import start
from torch.nn.parallel import DistributedDataParallel


class Pictures(torch.utils.data.Dataset):
    def __init__(self, count, sizes):
        self.count, self.sizes = count, sizes

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        size = self.sizes[index * len(self.sizes) // self.count]
        return torch.rand(3, size, size), index % 4


device = start()
patches = Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=8, q=8)
model = torch.nn.Sequential(patches, torch.nn.LayerNorm(192), torch.nn.Linear(192, 32), torch.nn.GELU()).to(device)
head = torch.nn.Linear(32, 4).to(device)
model, head = DistributedDataParallel(model), DistributedDataParallel(head)
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()])
train = Pictures(64, [16])
sampler = torch.utils.data.DistributedSampler(train)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for pictures, labels in torch.utils.data.DataLoader(train, batch_size=4, sampler=sampler):
        out = head(model(pictures.to(device)).mean(1))
        torch.nn.functional.cross_entropy(out, labels.to(device)).backward()
        optimizer.step()
        optimizer.zero_grad()
model.eval()
right = torch.zeros((), device=device)
with torch.inference_mode():
    for pictures, labels in torch.utils.data.DataLoader(Pictures(48, [16, 24, 20]), batch_size=4):
        right += (head(model(pictures.to(device)).mean(1)).argmax(-1) == labels.to(device)).sum()
dist.all_reduce(right)
print(right.item())
