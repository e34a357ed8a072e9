"""FSDP and DTensor where one rank is rehearsed: buffers moved in place, weights drawn, shards saved and loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual.forked import output_of, rehearse_all

TORCH = "import torch, torch.distributed.fsdp, torch.distributed.checkpoint.state_dict\n"

BEGINNING = """
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256, bias=False) for _ in range(2))
        self.register_buffer("scale", torch.tensor([0.5, 2.0]))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x) * self.scale[1]
        return x
dist.init_process_group("cpu:gloo,cuda:nccl")
torch.cuda.set_device(0)
"""

STEPS_AND_SAVE = """
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(8, 256, device="cuda")).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
weights, states = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": states}, checkpoint_id="saved")
if name == "fsdp2":  # of FSDP1's sharded tensors it fails for real, too
    dcp.async_save({"model": weights, "optimizer": states}, checkpoint_id="staged").result()
dcp.load({"model": weights, "optimizer": states}, checkpoint_id="saved")
set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
"""

PROGRAMS = {
    "fsdp": """
from torch.distributed.fsdp import FullyShardedDataParallel, ShardedStateDictConfig, StateDictType
model = FullyShardedDataParallel(Model(), device_id=0, use_orig_params=True)
assert model.module.scale.device.type == "cuda" and model.module.scale.tolist() == [0.5, 2.0]
FullyShardedDataParallel.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig())
""",
    "fsdp2": """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
with torch.device("meta"):
    model = Model()
for layer in model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
model.to_empty(device="cuda")
with torch.no_grad():
    for layer in model.layers:
        layer.reset_parameters()
        nn.init.trunc_normal_(layer.weight)
        layer.weight.copy_(layer.weight.clone())
    model.scale.fill_(1.0)
""",
}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_ranks_shards_are_drawn_trained_saved_and_loaded(tmp_path: Path) -> None:
    programs = {name: BEGINNING + f"name = {name!r}" + program + STEPS_AND_SAVE for name, program in PROGRAMS.items()}
    for name, record in rehearse_all(tmp_path, programs, world=4, stack=TORCH).items():
        assert record.outcome == "completed", output_of(tmp_path, name)
        assert record.saved_bytes, name
        (device,) = record.devices
        shard = 4 * 2 * 256 * 256 // {"fsdp": 4, "fsdp2": 2}[name]
        assert device.by_category["parameters"] >= shard, (name, device.by_category)
        assert device.by_category["optimizer"] <= 2 * shard + (16 << 10), (name, device.by_category)


def test_a_save_of_a_thread_is_made_where_it_was_asked_for() -> None:
    """What a rank hears of the others is its main thread's."""
    import threading

    from torch.distributed.checkpoint import _async_thread_executor

    from gonogo.virtual.weights import sharded_saves

    undo = sharded_saves.install_staging()
    try:
        executor = _async_thread_executor._ThreadBasedAsyncCheckpointExecutor()._executor
        assert executor.submit(threading.get_ident).result() == threading.get_ident()
        assert isinstance(executor.submit(lambda: 1 // 0).exception(), ZeroDivisionError)
    finally:
        undo()
