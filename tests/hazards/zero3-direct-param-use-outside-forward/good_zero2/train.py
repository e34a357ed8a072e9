import deepspeed
import torch
from torch.nn import functional as F
from model import Translator, batches

model = Translator.from_config("configs/7b.yaml")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in batches():
    hidden = engine(**batch)
    logits = F.linear(hidden, model.lm_head.weight)
    engine.backward(F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten()))
    engine.step()
