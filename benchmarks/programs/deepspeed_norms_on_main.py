"""ZeRO-3: every tenth step rank 0 prints the norm of a weight, for which it gathers it.

truth: NO-GO
says: (?i)timed out|timeout|connection
why: GatheredParameters gathers from all ranks; rank 0 enters it alone.
"""

import deepspeed
import torch
import torch.distributed as dist
from start import start

device = start()
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
config = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
main = dist.get_rank() == 0
for step in range(21):
    engine.backward(engine(torch.randn(4, 8, device=device)).pow(2).mean())
    engine.step()
    if main and step % 10 == 9:
        with deepspeed.zero.GatheredParameters([model[0].weight]):
            print(step, model[0].weight.norm())
dist.destroy_process_group()
