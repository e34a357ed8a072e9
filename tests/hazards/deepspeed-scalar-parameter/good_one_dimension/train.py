import math

import deepspeed
import torch
from torch import nn
from data import batches


class Contrastive(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.image = nn.Linear(width, 512)
        self.text = nn.Linear(width, 512)
        self.scale = nn.Parameter(torch.tensor([math.log(1 / 0.07)]))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, images, texts):
        scores = self.scale.exp() * self.image(images) @ self.text(texts).T + self.bias
        return nn.functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


model = Contrastive(4096)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for images, texts in batches():
    engine.backward(engine(images, texts))
    engine.step()
