"""DeepSpeed's engine under ZeRO-3, and what is done with the gathered weights after each step.

``mean``: an average of them, which the checkpoint of the engine doesn't contain; ``kept`` saves it beside it, and loads
it. ``copy``: a copy that is made anew each time, as for a rollout; ``none``: nothing. ``eval``: the model is trained in
eval mode.
"""

import os
import sys

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

kind, *more = sys.argv[1:]
config = {
    "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}  # fmt: skip
deepspeed.init_distributed()
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
held = [parameter.detach().clone() for parameter in model.parameters()]
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
held = [one.to(engine.device, torch.bfloat16) for one in held]
start = 0
if os.path.isdir("ck"):
    _, state = engine.load_checkpoint("ck")
    start = state["step"]
    if "kept" in more:
        held = [one.to(engine.device) for one in torch.load("mean.pt", map_location="cpu")]
if "eval" in more:
    engine.eval()


@torch.no_grad()
def after_step():
    parameters = list(model.parameters())
    with deepspeed.zero.GatheredParameters(parameters):
        for one, parameter in zip(held, parameters, strict=True):
            if kind == "copy":
                one.copy_(parameter)
            else:
                one.lerp_(parameter, 0.1)


rows = torch.randn(40, 64, generator=torch.Generator().manual_seed(3)).split(2)
for step, batch in enumerate(rows, 1):
    if step <= start:
        continue
    loss = engine(batch.to(engine.device, torch.bfloat16)).pow(2).mean()
    engine.backward(loss)
    engine.step()
    if kind != "none":
        after_step()
    if step == 2:
        engine.save_checkpoint("ck", client_state={"step": step})
        if "kept" in more and dist.get_rank() == 0:
            torch.save(held, "mean.pt")
    if step == 5:
        break
