"""Model, optimizer and loop are one Stateful, saved and loaded by torch.distributed.checkpoint on all ranks.

truth: GO
why: what is loaded has the names and sizes of what was saved, and every rank takes part.
"""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from start import start
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard


class Application(Stateful):
    def __init__(self, device):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 8)).to(device)
        for layer in self.model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.step = 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = state["step"]

    def train(self, until, device):
        while self.step < until:
            self.model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1


if __name__ == "__main__":
    device = start()
    first = Application(device)
    first.train(6, device)
    dcp.save({"application": first}, checkpoint_id="kept")
    second = Application(device)
    dcp.load({"application": second}, checkpoint_id="kept")
    assert second.step == 6, second.step
    second.train(9, device)
    dist.destroy_process_group()
