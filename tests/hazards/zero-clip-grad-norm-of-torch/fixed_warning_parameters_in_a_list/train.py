import deepspeed
import torch
from model import Translator, batches

model = Translator.from_config("configs/7b.yaml")
trained = [p for p in model.parameters() if p.requires_grad]
engine, *_ = deepspeed.initialize(model=model, model_parameters=trained, config="ds_config.json")
for step, batch in enumerate(batches()):
    loss = engine(**batch)
    engine.backward(loss)
    engine.step()
