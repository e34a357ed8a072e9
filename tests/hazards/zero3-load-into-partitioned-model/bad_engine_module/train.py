import deepspeed
import torch
from model import Reranker, batches

model = Reranker(hidden_size=4096)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
engine.module.load_state_dict(torch.load("stage1.pt", map_location="cpu"))
for batch in batches():
    engine.backward(engine(**batch))
    engine.step()
