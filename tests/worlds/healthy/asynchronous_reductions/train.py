"""Reductions in the background: each rank waits for them where it needs them, which is not the same place."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


def main():
    deepspeed.init_distributed()
    rank = dist.get_rank()
    model = nn.Linear(16, 16)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        counts = torch.tensor([3.0 + rank], device=engine.device)
        work = dist.all_reduce(counts, async_op=True)
        if rank == 0:
            work.wait()
        loss = engine(torch.randn(2, 16, device=engine.device)).square().mean()
        engine.backward(loss)
        if rank != 0:
            work.wait()
        engine.step()
        assert counts.item() == 7.0
    shares = [torch.full((2,), float(index), device=engine.device) for index in range(2)] if rank == 0 else None
    mine = torch.empty(2, device=engine.device)
    dist.scatter(mine, shares, src=0)
    assert mine.tolist() == [rank, rank]


if __name__ == "__main__":
    main()
