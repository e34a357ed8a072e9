import deepspeed
from model import Chat, batches, prompt

model = Chat.from_config("configs/7b.yaml")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")


def sample():
    if engine.global_rank != 0:
        return
    print(engine.module.generate(prompt(), max_new_tokens=64, synced_gpus=True))


for batch in batches():
    engine.backward(engine(**batch))
    engine.step()
    sample()
