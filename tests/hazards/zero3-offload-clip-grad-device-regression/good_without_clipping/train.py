import deepspeed
from model import build_model

model = build_model()
engine, optimizer, loader, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in loader:
    loss = engine(**batch)
    engine.backward(loss)
    engine.step()
