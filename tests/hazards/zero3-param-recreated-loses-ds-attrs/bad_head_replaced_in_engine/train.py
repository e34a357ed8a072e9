import deepspeed
import torch
from torch import nn
from model import Translator, batches

model = Translator.from_config("configs/7b.yaml")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
model.lm_head.weight = nn.Parameter(torch.load("head.pt", map_location="cuda"))
for batch in batches():
    engine.backward(engine(**batch))
    engine.step()
