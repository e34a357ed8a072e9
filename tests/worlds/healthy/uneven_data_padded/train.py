"""Shards of different lengths: ranks agree on the longest, and the shorter one begins again."""

import itertools

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


def main():
    deepspeed.init_distributed()
    shard = list(torch.randn(2 if dist.get_rank() == 0 else 1, 4, 32))
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    steps = torch.tensor(len(shard), device=engine.device)
    dist.all_reduce(steps, op=dist.ReduceOp.MAX)
    for batch in itertools.islice(itertools.cycle(shard), steps.item()):
        batch = batch.to(engine.device)
        loss = nn.functional.mse_loss(engine(batch), batch)
        engine.backward(loss)
        engine.step()
    print("steps", steps.item())


if __name__ == "__main__":
    main()
