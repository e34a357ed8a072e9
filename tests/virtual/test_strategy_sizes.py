"""The strategy's line: Megatron-Core's groups by their sizes, and those of device meshes."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torch import nn
from torch.distributed.tensor import Replicate, Shard

from gonogo.finding.as_run import MegatronGroups
from gonogo.virtual.hooks.strategy import describe_strategy, megatron_groups

SIZES = {
    "get_data_parallel_world_size": 2,
    "get_tensor_model_parallel_world_size": 2,
    "get_pipeline_model_parallel_world_size": 4,
    "get_context_parallel_world_size": 1,
    "get_expert_model_parallel_world_size": 8,
}


class DistributedDataParallel(nn.Module):
    """Named as Megatron-Core's and PyTorch's are."""


class FSDPModule(nn.Module):
    """Named as FSDP2's is."""


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Any:
    state: Any = ModuleType("megatron.core.parallel_state")
    for name, size in SIZES.items():
        setattr(state, name, lambda size=size: size)
    monkeypatch.setitem(sys.modules, state.__name__, state)
    return state


def wrapped(**config: bool) -> nn.Module:
    module: Any = DistributedDataParallel()
    module.ddp_config = SimpleNamespace(**config)
    return module  # type: ignore[no-any-return]


def test_megatron_cores_groups(groups: Any) -> None:
    named = "DDP 2 × TP 2 × PP 4 × EP 8"
    assert describe_strategy(None, wrapped(), []) == named
    assert describe_strategy(None, wrapped(use_distributed_optimizer=True), []) == f"{named}, distributed optimizer"
    groups.get_virtual_pipeline_model_parallel_world_size = lambda: 3
    assert describe_strategy(None, wrapped(), []) == f"{named}, 3 virtual stages"
    assert describe_strategy(None, wrapped(use_megatron_fsdp=True), []).startswith("FSDP 2 × TP 2")

    sizes = MegatronGroups(data=2, tensor=2, pipeline=4, expert=8, distributed_optimizer=True)
    assert megatron_groups(nn.Linear(1, 1), [wrapped(use_distributed_optimizer=True)]) == sizes
    assert megatron_groups(DistributedDataParallel(), []) is None


def test_groups_that_were_never_made(groups: Any) -> None:
    def refuse() -> int:
        raise AssertionError("tensor model parallel group is not initialized")

    for name in SIZES:
        setattr(groups, name, refuse)
    assert describe_strategy(None, wrapped(), []) == "DDP 1"
    assert describe_strategy(None, DistributedDataParallel(), []) == "DDP"


@pytest.mark.parametrize(
    ("names", "shape", "said"),
    [
        (("dp_shard", "tp"), (4, 2), "FSDP2 4 × TP 2"),
        (("dp_replicate", "dp_shard", "tp"), (2, 4, 2), "FSDP2 8 × TP 2"),
        (("dp_shard", "tp"), (8, 1), "FSDP2"),
        (("dp_shard",), (8,), "FSDP2"),
        (None, (4, 2), "FSDP2"),
        (("fsdp", "expert_parallel"), (2, 4), "FSDP2 2 × EP 4"),
    ],
)
def test_meshes_of_parameters(names: tuple[str, ...] | None, shape: tuple[int, ...], said: str) -> None:
    class OfMesh(nn.Parameter):
        device_mesh = SimpleNamespace(mesh_dim_names=names, shape=shape)

    module = FSDPModule()
    module.weight = OfMesh()
    assert describe_strategy(None, module, []) == said


@pytest.mark.parametrize(
    ("names", "shape", "placements", "said"),
    [
        (("dp_replicate", "dp_shard_cp"), (2, 8), "RS", "HSDP 2 × FSDP2 8"),
        (("dp_replicate", "dp_shard", "tp"), (2, 4, 2), "RSS", "HSDP 2 × FSDP2 4 × TP 2"),
        (("replicate", "shard"), (4, 2), "RS", "HSDP 4 × FSDP2 2"),
        (("dp_shard", "tp"), (4, 2), "SR", "FSDP2 4 × TP 2"),
        (("replicate", "shard"), (4, 2), "RR", "FSDP2"),
    ],
)
def test_replicas_of_what_is_sharded(
    names: tuple[str, ...], shape: tuple[int, ...], placements: str, said: str
) -> None:
    class OfMesh(nn.Parameter):
        device_mesh = SimpleNamespace(mesh_dim_names=names, shape=shape)

    found: Any = OfMesh()
    found.placements = tuple(Shard(0) if letter == "S" else Replicate() for letter in placements)
    module = FSDPModule()
    module.weight = found
    assert describe_strategy(None, module, []) == said


@pytest.mark.parametrize(
    ("root", "shape", "said"),
    [(("dp_shard", "cp"), (4, 2), "FSDP2 4 × CP 2"), (("dp_shard",), (8,), "FSDP2"), (("cp",), (8,), "FSDP2 1 × CP 8")],
)
def test_a_flattened_dimension_is_divided_as_its_root_is(
    root: tuple[str, ...], shape: tuple[int, ...], said: str
) -> None:
    """torchtitan shards parameters over ``dp_shard_cp``, also where no rank shares a sample's tokens."""

    class OfMesh(nn.Parameter):
        device_mesh = SimpleNamespace(
            mesh_dim_names=("dp_shard_cp",), shape=(8,),
            _get_root_mesh=lambda: SimpleNamespace(mesh_dim_names=root, shape=shape),
        )  # fmt: skip

    module = FSDPModule()
    module.weight = OfMesh()
    assert describe_strategy(None, module, []) == said
