import deepspeed
import torch
from model import Translator, batches

model = Translator.from_config("configs/7b.yaml")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for step, batch in enumerate(batches()):
    engine.backward(engine(**batch))
    engine.step()
    with deepspeed.zero.GatheredParameters(model.lm_head.weight):
        copy = model.lm_head.weight.detach().cpu()
        copy.mul_(2.0)
