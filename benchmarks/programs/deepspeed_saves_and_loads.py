"""ZeRO-3 with a checkpoint of all ranks, read back, and weights gathered to be looked at.

truth: GO
why: each call that is a collective is made by both ranks.
"""

import deepspeed
import torch
import torch.distributed as dist
from start import start

device = start()
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
config = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 3},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(12):
    loss = engine(torch.randn(4, 8, device=device)).pow(2).mean()
    engine.backward(loss)
    engine.step()
engine.save_checkpoint("kept", tag="last")
engine.load_checkpoint("kept", tag="last")
with deepspeed.zero.GatheredParameters(list(model.parameters())):
    assert model[0].weight.shape == (16, 8)
engine.backward(engine(torch.randn(4, 8, device=device)).pow(2).mean())
engine.step()
dist.destroy_process_group()
