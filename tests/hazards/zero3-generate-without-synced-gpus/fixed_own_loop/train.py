import deepspeed
import torch
from torch.nn import functional as F
from model import Translator, batches

model = Translator.from_config("configs/7b.yaml")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in batches():
    engine.backward(engine(**batch))
    if engine.global_steps % 500 == 0:
        sample = engine.module.generate(batch["prompt_ids"], max_new_tokens=128, synced_gpus=True)
    engine.step()
