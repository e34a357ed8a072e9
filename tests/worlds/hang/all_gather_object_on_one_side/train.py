"""Collects the names of samples that were too long, from ranks that saw any."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

LENGTHS = [8, 70, 12, 9]
LIMIT = 64


def collate(indices):
    return {"names": [f"sample-{index}" for index in indices], "lengths": [LENGTHS[index] for index in indices]}


def main():
    deepspeed.init_distributed()
    model = nn.Linear(16, 16)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    indices = range(len(LENGTHS))
    loader = DataLoader(indices, batch_size=1, sampler=DistributedSampler(indices, shuffle=False), collate_fn=collate)
    skipped = []
    for batch in loader:
        skipped += [name for name, length in zip(batch["names"], batch["lengths"], strict=True) if length > LIMIT]
        x = torch.randn(1, 16, device=engine.device)
        engine.backward(engine(x).square().mean())
        engine.step()
    if skipped:
        everywhere = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, skipped)
        print("too long:", everywhere)


if __name__ == "__main__":
    main()
