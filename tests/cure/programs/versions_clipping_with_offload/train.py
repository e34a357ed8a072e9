"""Clips gradients that are offloaded, with a DeepSpeed that can't."""

import deepspeed
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        return (self.body(x) - x).square().mean()


def main():
    deepspeed.init_distributed()
    model = Model()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(4):
        loss = engine(torch.randn(2, 64, device=engine.device))
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
