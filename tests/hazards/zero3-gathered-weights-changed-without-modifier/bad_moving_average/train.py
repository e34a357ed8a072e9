import deepspeed
import torch
from model import Translator, batches

model = Translator.from_config("configs/7b.yaml")
shadow = Translator.from_config("configs/7b.yaml")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for step, batch in enumerate(batches()):
    engine.backward(engine(**batch))
    engine.step()
    for weight, average in zip(model.parameters(), shadow.parameters()):
        with deepspeed.zero.GatheredParameters([weight, average], modifier_rank=None):
            average.data.copy_(torch.lerp(weight.data, average.data, 0.999))
