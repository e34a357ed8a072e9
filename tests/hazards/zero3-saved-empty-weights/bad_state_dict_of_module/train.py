import deepspeed
import torch
from torch.nn import functional as F
from model import Translator, batches

model = Translator.from_config("configs/7b.yaml")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in batches():
    engine.backward(engine(**batch))
    if engine.global_steps % 1000 == 0 and engine.global_rank == 0:
        torch.save(engine.module.state_dict(), f"out/step-{engine.global_steps}.pt")
    engine.step()
