import deepspeed
import torch
from model import Reranker, batches

model = Reranker(hidden_size=4096)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
engine.load_checkpoint("out", tag="epoch-1")
for batch in batches():
    engine.backward(engine(**batch))
    engine.step()
