"""The first rank watches its loss and decides on the learning rate; its decision is broadcast."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


def main():
    deepspeed.init_distributed()
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config="ds_config.json"
    )
    for _ in range(3):
        x = torch.randn(2, 16, device=engine.device, dtype=torch.bfloat16)
        loss = nn.functional.mse_loss(engine(x), x)
        engine.backward(loss)
        engine.step()
        lower = torch.tensor(int(loss.item() > 1.0) if dist.get_rank() == 0 else 0, device=engine.device)
        dist.broadcast(lower, src=0)
        if lower:
            for group in optimizer.param_groups:
                group["lr"] *= 0.5
            dist.barrier()


if __name__ == "__main__":
    main()
