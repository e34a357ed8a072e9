import deepspeed
import torch
from model import Critic, Translator, batches

model, critic = Translator.from_config("configs/7b.yaml"), Critic()
optimizer = torch.optim.AdamW(critic.parameters(), lr=1e-4)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in batches():
    output = engine(**batch)
    engine.backward(output.loss)
    engine.step()
    critic_loss = critic(output.logits.detach())
    critic_loss.backward()
    optimizer.step()
    optimizer.zero_grad()
