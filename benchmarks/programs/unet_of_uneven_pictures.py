"""A small U-Net learns to take noise off pictures of several sizes, padded to what its halvings need.

truth: GO
why: each batch is padded to a multiple of four, so what is joined in the decoder has one size.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.functional import pad
from torch.nn.parallel import DistributedDataParallel


class UNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.time = torch.nn.Embedding(100, 8)
        self.down1 = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.down2 = torch.nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.middle = torch.nn.GroupNorm(4, 16)
        self.up2 = torch.nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.up1 = torch.nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.last = torch.nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, picture, step):
        first = torch.relu(self.down1(picture) + self.time(step)[:, :, None, None])
        below = torch.relu(self.middle(self.down2(first)))
        return self.last(torch.relu(self.up1(torch.cat([self.up2(below), first], 1))))


device = start()
net = UNet().to(device)
betas = torch.linspace(1e-4, 0.02, 100, device=device)
kept = torch.cumprod(1 - betas, 0)
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters())
for index in range(12):
    width = 16 + index % 5
    picture = torch.rand(2, 3, 16, width, device=device)
    picture = pad(picture, (0, -width % 4))
    step = torch.randint(0, 100, (2,), device=device)
    noise = torch.randn_like(picture)
    part = kept[step][:, None, None, None]
    loss = (model(part.sqrt() * picture + (1 - part).sqrt() * noise, step) - noise).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
