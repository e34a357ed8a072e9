"""An actor and a critic, each an engine of ZeRO-2 with an accumulation of its own, then both saved.

truth: GO
why: both ranks step both engines in the same order, and a save is made by all ranks.
"""

import deepspeed
import torch
import torch.distributed as dist
from start import start


def engine_of(model, accumulation):
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 2},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    }
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


device = start()
actor = engine_of(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)), 2)
critic = engine_of(torch.nn.Linear(8, 1), 1)
for _ in range(8):
    rows = torch.randn(4, 8, device=device)
    with torch.no_grad():
        advantage = critic(rows)
    actor.backward(-(actor(rows).log_softmax(-1)[:, :1] * advantage).mean())
    actor.step()
    critic.backward(critic(rows).pow(2).mean())
    critic.step()
actor.save_checkpoint("kept", tag="actor")
critic.save_checkpoint("kept", tag="critic")
dist.destroy_process_group()
