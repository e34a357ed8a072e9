import deepspeed
import torch

engine, _, loader, _ = deepspeed.initialize(model=network(), training_data=samples(), config="ds.json")
for batch in loader:
    loss = engine(batch.to(engine.device))
    engine.backward(loss)
    engine.step()
    value = loss.item()
    if value < 0.01:
        break
engine.save_checkpoint("out")
