"""A ViT is trained on pictures of 32 pixels, and evaluated when training has ended on pictures of 48.

truth: NO-GO
says: (?i)image size
why: its position embeddings are of 32 pixels, and nothing interpolates them.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import ViTConfig, ViTForImageClassification


class Pictures(Dataset):
    def __init__(self, length, size):
        self.length, self.size = length, size

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.full((3, self.size, self.size), index / self.length), index % 4


device = start()
size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
model = ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, num_labels=4, **size)).to(device)
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
rows = Pictures(160, 32)
for picture, label in DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows)):
    model(pixel_values=picture.to(device), labels=label.to(device)).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
right = torch.zeros((), device=device)
with torch.no_grad():
    for picture, label in DataLoader(Pictures(16, 48), batch_size=4):
        right += (model(pixel_values=picture.to(device)).logits.argmax(-1) == label.to(device)).sum()
dist.all_reduce(right)
