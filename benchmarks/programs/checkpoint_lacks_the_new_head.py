"""A distributed checkpoint of the first stage is loaded into the model of the second, which has a head more.

truth: NO-GO
says: Missing key
why: dcp.load asks the checkpoint for every key of the state that it is given.
"""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from start import start
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard

device = start()


def trained(model, steps):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        model(torch.randn(4, 16, device=device)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


first = trained(torch.nn.Sequential(torch.nn.Linear(16, 16)).to(device), 10)
dcp.save({"model": get_model_state_dict(first)}, checkpoint_id="first")
dist.barrier()
second = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)).to(device)
fully_shard(second)
state = {"model": get_model_state_dict(second)}
dcp.load(state, checkpoint_id="first")
set_model_state_dict(second, state["model"])
trained(second, 10)
