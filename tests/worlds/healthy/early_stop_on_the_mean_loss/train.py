"""Stops early when the loss, averaged over the ranks, no longer falls."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


def main():
    deepspeed.init_distributed()
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    best, patience = float("inf"), 1
    for _ in range(3):
        x = torch.randn(2, 16, device=engine.device)
        loss = nn.functional.mse_loss(engine(x), x)
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG if x.is_cuda else dist.ReduceOp.SUM)
        if mean.item() < best:
            best = mean.item()
        elif patience == 0:
            break
        else:
            patience -= 1
    engine.save_checkpoint("output")


if __name__ == "__main__":
    main()
