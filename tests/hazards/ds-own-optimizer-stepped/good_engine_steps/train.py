import deepspeed
import torch
from model import Translator, batches

model = Translator.from_config("configs/7b.yaml")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config="ds_config.json")
for step, batch in enumerate(batches()):
    loss = engine(**batch)
    engine.backward(loss)
    engine.step()
