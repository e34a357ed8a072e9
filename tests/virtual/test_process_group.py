from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.distributed.device_mesh import init_device_mesh

from gonogo.virtual.collectives import process_group

WORLD = {"RANK": "1", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}


@pytest.fixture
def assumptions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    for name, value in WORLD.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket.socket, "bind", _no_port)
    told: list[str] = []
    undo = process_group.install(lambda what, kind="": told.append(f"{kind}: {what.en}" if kind else what.en))
    yield told
    undo()


def _no_port(*args: object) -> None:
    raise AssertionError("a port was opened")


@pytest.mark.parametrize("backend", ["nccl", "gloo", "hccl", "cuda:nccl,cpu:gloo", None])
def test_the_world_is_the_launchers(assumptions: list[str], backend: str | None) -> None:
    dist.init_process_group(backend)
    assert (dist.get_rank(), dist.get_world_size()) == (1, 8)
    assert dist.get_backend() == (backend or "undefined")
    dist.barrier()
    dist.barrier(device_ids=[1])
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    dist.all_gather_into_tensor(torch.empty(16), tensor)
    dist.reduce_scatter_tensor(torch.empty(2), torch.ones(16))
    dist.destroy_process_group()
    assert not dist.is_initialized()


@pytest.mark.parametrize(("backend", "device"), [("nccl", "cuda"), ("gloo", "cpu"), (None, "cpu")])
def test_a_group_takes_tensors_from_the_device_of_its_backend(
    assumptions: list[str], backend: str | None, device: str
) -> None:
    dist.init_process_group(backend)
    assert c10d._get_pg_default_device() == torch.device(device)
    assert c10d._get_object_coll_device(dist.new_group([0, 1])) == device
    types = {found.type for found in dist.group.WORLD._device_types}
    expected = {"nccl": {"cuda"}, None: {"cpu", "cuda"}}
    # By these torch decides where a full state dict is broadcast, and whether a save may be asynchronous.
    assert types == expected.get(backend, types)
    assert types <= {"cpu", "cuda"}


def test_rank_and_world_from_arguments(assumptions: list[str]) -> None:
    dist.init_process_group("nccl", init_method="tcp://10.0.0.1:1234", rank=3, world_size=4)
    assert (dist.get_rank(), dist.get_world_size()) == (3, 4)


def test_a_store_of_the_programs_own(assumptions: list[str]) -> None:
    store = dist.TCPStore("10.0.0.1", 1234, 4, is_master=False)
    store.set("key", "value")
    assert store.get("key") == b"value"
    dist.init_process_group("nccl", store=store, rank=0, world_size=4)
    assert dist.get_world_size() == 4


def test_missing_environment_is_still_an_error(assumptions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK")
    with pytest.raises(ValueError, match="environment variable RANK expected, but not set"):
        dist.init_process_group("nccl")


@pytest.mark.parametrize(
    ("backend", "message"), [("nccll", "Unknown c10d backend type NCCLL"), ("mpi", "doesn't have MPI built in")]
)
def test_unknown_backends_are_still_an_error(assumptions: list[str], backend: str, message: str) -> None:
    with pytest.raises((AssertionError, RuntimeError), match=message):
        dist.init_process_group(backend)


def test_groups(assumptions: list[str]) -> None:
    dist.init_process_group("nccl")
    mine = dist.new_group([0, 1])
    other = dist.new_group([2, 3])
    cpu = dist.new_group(backend="gloo")
    assert (dist.get_backend(mine), dist.get_rank(mine), dist.get_world_size(mine)) == ("nccl", 1, 2)
    assert other is dist.GroupMember.NON_GROUP_MEMBER
    assert dist.get_backend(cpu) == "gloo"
    subgroup, _ = dist.new_subgroups(4)
    assert dist.get_world_size(subgroup) == 4
    dist.monitored_barrier(cpu)
    with pytest.raises(ValueError, match="only implemented for GLOO"):
        dist.monitored_barrier()
    cpu.monitored_barrier()  # as Lightning's rank_zero_first does
    cpu.monitored_barrier(timedelta(days=10000), wait_all_ranks=True)
    with pytest.raises(RuntimeError, match="Backend nccl does not support monitoredBarrier"):
        mine.monitored_barrier()


def test_device_mesh(assumptions: list[str]) -> None:
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    assert dist.get_world_size(mesh["tp"].get_group()) == 4
    assert mesh["dp"].get_local_rank() == 0
    assert mesh["tp"].get_local_rank() == 1


def test_coalescing(assumptions: list[str]) -> None:
    dist.init_process_group("nccl")
    with dist._coalescing_manager(async_ops=True) as manager:
        for _ in range(3):
            dist.all_gather_into_tensor(torch.empty(16), torch.ones(2))
    manager.wait()


def test_objects(assumptions: list[str]) -> None:
    dist.init_process_group("nccl")
    sent = {"rank": 1}
    gathered = [None] * 8
    dist.all_gather_object(gathered, sent)
    assert gathered == [sent] * 8
    assert gathered[0] is not gathered[1]
    assert assumptions == ["peer_objects: every rank sends the same objects as this rank"]
    broadcast = ["mine"]
    dist.broadcast_object_list(broadcast, src=1)
    assert len(assumptions) == 1  # this rank is the source: nothing was assumed
    dist.broadcast_object_list(broadcast, src=0)
    assert broadcast == ["mine"]
    assert assumptions[-1].startswith("peer_objects: rank 0 broadcasts")
    scattered = [None]
    dist.scatter_object_list(scattered, list(range(8)), src=1)
    assert scattered == [1]
    dist.scatter_object_list(scattered, list(range(8)), src=0)
    assert scattered == [1]
    assert assumptions[-1].startswith("peer_objects: rank 0 scatters")
    dist.recv_object_list(scattered, src=0)
    assert assumptions[-1].startswith("peer_objects: the objects that another rank sends")
    destination = [None] * 8
    dist.gather_object(sent, destination, dst=1)
    assert destination == [sent] * 8
    dist.gather_object(sent, None, dst=0)
    with pytest.raises(Exception, match="pickle"):
        dist.all_gather_object(gathered, lambda: None)
    with pytest.raises(IndexError):
        dist.all_gather_object([None], sent)


def test_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {
        name: getattr(dist, name) for name in ("init_process_group", "new_group", "TCPStore", "all_gather_object")
    }
    available = dist.is_nccl_available()
    undo = process_group.install(lambda what, kind="": None)
    assert dist.is_nccl_available()
    assert dist.is_backend_available("nccl")
    undo()
    assert {name: getattr(dist, name) for name in before} == before
    assert dist.is_nccl_available() is available
