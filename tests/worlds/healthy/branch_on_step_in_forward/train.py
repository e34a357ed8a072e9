"""An auxiliary loss every second step, on every rank alike, under ZeRO-3."""

import deepspeed
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.probe = nn.Linear(width, 8)
        self.head = nn.Linear(width, 1)

    def forward(self, x, y, step):
        hidden = self.body(x)
        loss = nn.functional.mse_loss(self.head(hidden), y)
        if step % 2 == 1:
            loss = loss + 0.1 * self.probe(hidden).square().mean()
        return loss


deepspeed.init_distributed()
model = Model()
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for step in range(3):
    x = torch.randn(4, 64, device=engine.device)
    loss = engine(x, x.mean(dim=1, keepdim=True), step)
    engine.backward(loss)
    engine.step()
