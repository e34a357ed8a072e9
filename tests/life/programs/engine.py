"""DeepSpeed's own engine: save_checkpoint and load_checkpoint, at the ZeRO stage of the first argument."""

import json
import os
import sys

import deepspeed
import torch
from torch import nn

stage = int(sys.argv[1])
without = set(sys.argv[2:])
config = {
    "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "gradient_clipping": 1.0,
    "zero_optimization": {"stage": stage}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
}  # fmt: skip
deepspeed.init_distributed()
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
start = 0
if os.path.isdir("ck"):
    _, state = engine.load_checkpoint(
        "ck", load_optimizer_states="optimizer" not in without, load_lr_scheduler_states="scheduler" not in without
    )
    start = state["step"]
rows = torch.randn(40, 64, generator=torch.Generator().manual_seed(3)).split(2)
for step, batch in enumerate(rows, 1):
    if step <= start:
        continue
    loss = engine(batch.to(engine.device, torch.bfloat16)).pow(2).mean()
    engine.backward(loss)
    engine.step()
    if step == 2:
        engine.save_checkpoint("ck", client_state={"step": step})
    if step == 5:
        break
print(json.dumps({"start": start}))
