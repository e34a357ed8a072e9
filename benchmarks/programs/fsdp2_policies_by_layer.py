"""FSDP2 with its own policies: blocks gather in bfloat16 and reduce in float32, a router stays whole and in float32.

truth: GO
why: the router's weights are left out of the sharding and averaged by hand; the whole state is gathered by all ranks.
"""

import torch
import torch.distributed as dist
from start import start
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard


class Mixture(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.router = torch.nn.Linear(16, 2, bias=False)
        self.experts = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(2)])

    def forward(self, x):
        weights = self.router(x.float()).softmax(-1).to(x.dtype)
        return x + sum(weights[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


device = start()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), Mixture(), Mixture(), torch.nn.Linear(16, 4)).to(device)
routers = {parameter for block in model[1:3] for parameter in block.router.parameters()}
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=True)
for block in model[1:3]:
    fully_shard(
        block, mp_policy=policy, ignored_params=set(block.router.parameters()),
        shard_placement_fn=lambda parameter: Shard(1) if parameter.ndim == 2 else Shard(0),
    )  # fmt: skip
fully_shard(model, mp_policy=policy, ignored_params=routers, reshard_after_forward=False)
model[1].set_modules_to_forward_prefetch([model[2]])
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for step in range(6):
    model.set_requires_gradient_sync(step % 2 == 1)
    out = model(torch.randn(4, 8, device=device))
    torch.nn.functional.cross_entropy(out.float(), torch.randint(0, 4, (4,), device=device)).backward()
    if step % 2:
        for parameter in routers:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        optimizer.zero_grad()
state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if dist.get_rank() == 0:
    torch.save(state, "model.pt")
dist.barrier()
dist.destroy_process_group()
