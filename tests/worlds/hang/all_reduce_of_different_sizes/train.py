"""Averages the loss of each sample over the ranks; the last rank's batch is the smaller one."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


def main():
    deepspeed.init_distributed()
    rank, world = dist.get_rank(), dist.get_world_size()
    data = torch.randn(7, 32).tensor_split(world)[rank]
    model = nn.Linear(32, 32)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for step in range(2):
        batch = data.to(engine.device)
        per_sample = (engine(batch) - batch).square().mean(dim=1)
        engine.backward(per_sample.mean())
        engine.step()
        report = per_sample.detach().clone()
        dist.all_reduce(report)
        if rank == 0:
            print(f"step {step}", report / world)


if __name__ == "__main__":
    main()
