import deepspeed
import torch
from model import Translator, batches

model = Translator.from_config("configs/7b.yaml")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for step, batch in enumerate(batches()):
    loss = engine(**batch)
    loss.backward()
    engine.step()
