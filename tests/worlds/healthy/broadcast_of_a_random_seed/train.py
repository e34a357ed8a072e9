"""The first rank draws a seed and everyone shuffles, and drops layers, by it."""

import random

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


class Stochastic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def forward(self, x, kept):
        for layer in (self.layers[index] for index in kept):
            x = x + layer(x).relu()
        return x


def main():
    deepspeed.init_distributed()
    model = Stochastic()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    seed = torch.tensor(random.SystemRandom().randrange(2**31), device=engine.device)
    dist.broadcast(seed, src=0)
    generator = random.Random(seed.item())
    for _ in range(2):
        kept = sorted(generator.sample(range(4), 3))
        engine.backward(engine(torch.randn(2, 32, device=engine.device), kept).square().mean())
        engine.step()


if __name__ == "__main__":
    main()
