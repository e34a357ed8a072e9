"""DeepSpeed's own engine at the ZeRO stage of the first argument: save_checkpoint and load_checkpoint.

Of the other arguments ``universal`` converts the checkpoint before it is loaded (in a ``process`` of its own),
``consolidated`` makes one file of weights of it by zero_to_fp32, and ``optimizer``, ``scheduler``, ``prefix`` and
``seen`` leave that out of the resume. ``each`` saves again after it was resumed, into another folder; ``wide`` is a
larger model.
"""

import json
import os
import subprocess
import sys

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from truth import step_begins

stage = int(sys.argv[1])
without = set(sys.argv[2:])
config = {
    "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "gradient_clipping": 1.0,
    "zero_optimization": {"stage": stage}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
}  # fmt: skip
deepspeed.init_distributed()
resumes = os.path.isdir("ck")
if resumes and "universal" in without:
    if dist.get_rank() == 0:
        from deepspeed.checkpoint import ds_to_universal

        words = ["--input_folder", "ck/step2", "--output_folder", "ck/universal", "--num_extract_workers", "1",
                 "--num_merge_workers", "1", "--inject_missing_state"]  # fmt: skip
        if "process" in without:
            subprocess.run([sys.executable, ds_to_universal.__file__, *words], check=True)
        else:
            own, sys.argv = sys.argv, [ds_to_universal.__file__, *words]
            ds_to_universal.main(ds_to_universal.parse_arguments())
            sys.argv = own
    dist.barrier()
    config["checkpoint"] = {"load_universal": True}
torch.manual_seed(1 if not resumes else 2)
width = 32_768 if "wide" in without else 128
model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 8))
if resumes and "consolidated" in without:
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    weights = get_fp32_state_dict_from_zero_checkpoint("ck", "step2")
    if "prefix" in without:
        weights = {f"module.{name}": value for name, value in weights.items()}
    model.load_state_dict(weights, strict="prefix" not in without)
engine, optimizer, _, scheduler = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
start = 0
if resumes and "consolidated" in without:
    start = 2
elif resumes:
    _, state = engine.load_checkpoint(
        "ck", tag="universal" if "universal" in without else None, load_optimizer_states="optimizer" not in without,
        load_lr_scheduler_states="scheduler" not in without, load_module_only="weights" in without,
    )  # fmt: skip
    start = 0 if "seen" in without else state["step"]
rows = torch.randn(40, 64, generator=torch.Generator().manual_seed(3)).split(2)
for step, batch in enumerate(rows, 1):
    if step <= start:
        continue
    step_begins(model, optimizer, scheduler, batch, saved=step == start + 3)
    loss = engine(batch.to(engine.device, torch.bfloat16)).pow(2).mean()
    engine.backward(loss)
    engine.step()
    if step == 2 or (step == 4 and "each" in without):
        engine.save_checkpoint("ck", tag=f"step{step}", client_state={"step": step})
    if step == start + 5:
        break
print(json.dumps({"start": start}))
