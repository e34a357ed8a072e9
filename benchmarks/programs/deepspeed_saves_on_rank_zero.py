"""ZeRO-2, with save_checkpoint called where one saves: on rank 0.

truth: NO-GO
says: (?i)connection|timed out|timeout
why: save_checkpoint has barriers, and each rank writes its own part.
"""

import deepspeed
import torch
import torch.distributed as dist
from start import start

device = start()
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
config = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(12):
    loss = engine(torch.randn(4, 8, device=device)).pow(2).mean()
    engine.backward(loss)
    engine.step()
if dist.get_rank() == 0:
    engine.save_checkpoint("kept")
dist.barrier()
