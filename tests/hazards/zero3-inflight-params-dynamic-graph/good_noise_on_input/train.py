import random

import deepspeed
from torch import nn
from parts import Block, batches


class Encoder(nn.Module):
    def __init__(self, depth, width):
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            if random.random() < 0.1:
                x = x + 0.01
            x = layer(x)
        return self.head(x).mean()


model = Encoder(48, 4096)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for x in batches():
    engine.backward(engine(x))
    engine.step()
