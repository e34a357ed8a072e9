import deepspeed
import torch
from torch.nn import functional as F
from model import Translator, batches

model = Translator.from_config("configs/7b.yaml")
similar = torch.matmul(model.embedding.weight[:10], model.embedding.weight.t()).argmax(-1)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in batches():
    engine.backward(engine(**batch))
    engine.step()
