import deepspeed
import torch
from torch import nn
from torch.nn import functional as F
from model import Backbone, batches


class NormHead(nn.Module):
    def __init__(self, width, vocabulary):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))
        self.first = True

    def forward(self, hidden):
        if not self.training and self.first:
            self.first = False
            self.weight = nn.Parameter(F.normalize(self.weight))
        return F.linear(hidden, self.weight)


model = nn.Sequential(Backbone(4096), NormHead(4096, 125696))
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch, labels in batches():
    engine.backward(F.cross_entropy(engine(batch), labels))
    engine.step()
