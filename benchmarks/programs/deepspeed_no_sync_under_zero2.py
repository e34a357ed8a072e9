"""The loop came from DDP: its first micro-batches are under no_sync, and the engine has ZeRO-2.

truth: NO-GO
says: no_sync
why: the engine refuses no_sync where gradients are partitioned.
"""

import deepspeed
import torch
from start import start

device = start()
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(4):
    with engine.no_sync():
        engine.backward(engine(torch.randn(4, 8, device=device)).pow(2).mean())
    engine.backward(engine(torch.randn(4, 8, device=device)).pow(2).mean())
    engine.step()
