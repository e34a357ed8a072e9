import deepspeed
import torch
from torch.nn import functional as F
from model import Translator, batches

model = Translator.from_config("configs/7b.yaml")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in batches():
    engine.backward(engine(**batch))
    with deepspeed.zero.GatheredParameters(model.lm_head.weight):
        scores = torch.matmul(batch["probe"], model.lm_head.weight.t())
    engine.step()
