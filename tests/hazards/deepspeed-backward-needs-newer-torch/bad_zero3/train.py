import deepspeed

from data import loader
from model import build

model = build()
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in loader():
    engine.backward(engine(**batch))
    engine.step()
