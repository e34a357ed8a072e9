"""An adapter for pictures beside a text body, with DistributedDataParallel; one shard has no pictures."""

import os

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(32, 64)
        self.picture_adapter = nn.Linear(48, 64)
        self.head = nn.Linear(64, 10)

    def forward(self, text, picture=None):
        hidden = self.body(text)
        if picture is not None:
            hidden = hidden + self.picture_adapter(picture)
        return self.head(hidden.relu())


def main():
    deepspeed.init_distributed()
    local_rank = int(os.environ["LOCAL_RANK"])
    get_accelerator().set_device(local_rank)
    device = torch.device(get_accelerator().device_name(local_rank))
    model = DistributedDataParallel(Model().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        text = torch.randn(4, 32, device=device)
        picture = torch.randn(4, 48, device=device) if dist.get_rank() == 0 else None
        loss = model(text, picture).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
