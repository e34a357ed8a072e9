"""Stochastic depth: each layer is left out with some probability, which every rank draws for itself."""

import random

import deepspeed
import torch
from torch import nn


class StochasticDepth(nn.Module):
    def __init__(self, width=32, depth=12, keep=0.5):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 1)
        self.keep = keep

    def forward(self, x):
        for layer in self.layers:
            if not self.training or random.random() < self.keep:
                x = x + layer(x).relu()
        return self.head(x)


def main():
    deepspeed.init_distributed()
    model = StochasticDepth()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        x = torch.randn(2, 32, device=engine.device)
        engine.backward(engine(x).square().mean())
        engine.step()


if __name__ == "__main__":
    main()
