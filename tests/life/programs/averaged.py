"""A loop with an average of its weights, and what it leaves out of the save or the load.

``torch``: AveragedModel; ``module``: a copy of the model, as timm's; ``shadow``: a list of tensors, as diffusers'.
``none`` has no average, but a copy of the weights that is made anew after each step, as for a rollout.
"""

import copy
import os
import sys

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

kind, *without = sys.argv[1:]
device = "cuda" if torch.cuda.is_available() else "cpu"


class ModuleAverage(nn.Module):
    """As timm's ModelEmaV2."""

    def __init__(self, model):
        super().__init__()
        self.module = copy.deepcopy(model)

    @torch.no_grad()
    def update_parameters(self, model):
        for mean, now in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            mean.copy_(0.9 * mean + 0.1 * now)


class ShadowAverage:
    """As diffusers' EMAModel."""

    def __init__(self, model):
        self.shadow_params = [one.clone().detach() for one in model.parameters()]
        self.optimization_step = 0

    @torch.no_grad()
    def update_parameters(self, model):
        self.optimization_step += 1
        for mean, now in zip(self.shadow_params, model.parameters(), strict=True):
            mean.sub_(0.1 * (mean - now))

    def state_dict(self):
        return {"shadow_params": self.shadow_params, "optimization_step": self.optimization_step}

    def load_state_dict(self, state):
        self.shadow_params = [one.to(device) for one in state["shadow_params"]]
        if "counter" not in without:
            self.optimization_step = state["optimization_step"]


class CopiedWeights(ModuleAverage):
    """No average."""

    @torch.no_grad()
    def update_parameters(self, model):
        for copied, now in zip(self.module.parameters(), model.parameters(), strict=True):
            copied.copy_(now)


def swa_average(model):
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))


KINDS = {"torch": swa_average, "module": ModuleAverage, "shadow": ShadowAverage, "none": CopiedWeights}
torch.manual_seed(1)
model = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 64)).to(device)
average = KINDS[kind](model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
start = 0
if os.path.exists("ck.pt"):
    saved = torch.load("ck.pt", map_location="cpu", weights_only=False)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    if "load" not in without and "save" not in without:
        average.load_state_dict(saved["average"])
    if "again" in without:
        average = ShadowAverage(model)
    start = saved["step"]
rows = torch.randint(0, 50, (40, 4), generator=torch.Generator().manual_seed(3))
for step, batch in enumerate(torch.utils.data.DataLoader(rows, batch_size=2), 1):
    if step <= start:
        continue
    model(batch.to(device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update_parameters(model)
    if step == 2:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        if "save" not in without:
            state["average"] = average.state_dict()
        torch.save(state, "ck.pt")
    if step == 6:
        break
