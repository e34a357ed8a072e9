import deepspeed
from model import Translator, batches

model = Translator.from_config("configs/7b.yaml")
trained = list(filter(lambda p: p.requires_grad, model.parameters()))
engine, *_ = deepspeed.initialize(model=model, model_parameters=trained, config="ds_config.json")
for step, batch in enumerate(batches()):
    loss = engine(**batch)
    engine.backward(loss)
    print(step, max(p.grad.abs().max() for p in trained if p.grad is not None))
    engine.step()
