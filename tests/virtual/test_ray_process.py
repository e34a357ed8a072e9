"""What belongs to a process of a rehearsed Ray cluster: the invariants at the top of ``virtual/ray/process.py``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed.distributed_c10d as c10d

from gonogo.virtual.memory.tracking import MemoryRecord
from gonogo.virtual.ray.process import ClusterDevices, RayProcess
from gonogo.virtual.tensor import CPU

PACKAGE = "verl"
CODE = """
state = None
def helper(value, seen=[]):
    seen.append(value)
    return len(seen)
class Registry:
    count = 0
    instance = None
"""


class Life:
    phase = "load"
    activity = ""

    def enter(self, phase: str) -> None:
        self.phase = phase


def imported(name: str, code: str) -> ModuleType:
    module = ModuleType(name)
    vars(module)["__name__"] = name
    exec(code, vars(module))
    sys.modules[name] = module
    return module


@pytest.fixture
def package() -> Iterator[Any]:
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == PACKAGE}
    yield imported(PACKAGE, CODE)
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def machine(package: Any) -> Iterator[ClusterDevices]:
    """Two nodes of four GPUs; what is the interpreter's is put back."""
    groups = {name: value for name, value in vars(c10d).items() if name.startswith(("_pg_", "_tags_", "_group_count"))}
    world, environment = dict(vars(c10d._world)), dict(os.environ)
    memory = SimpleNamespace(devices={CPU: object()}, _make_device=lambda name: f"record of {name}")
    yield ClusterDevices(cast(MemoryRecord, memory), cast(Any, Life()), None, per_node=4)
    os.environ.clear()
    os.environ.update(environment)
    vars(c10d).update(groups)
    vars(c10d._world).update(world)
    torch.set_default_dtype(torch.float32)


def process(machine: ClusterDevices, number: int, node: int = 0, **environment: str) -> RayProcess:
    return RayProcess(number, f"actor {number}", machine, environment, node, ())


def test_each_finds_everything_as_it_left_it(machine: ClusterDevices, package: Any) -> None:
    first, second = process(machine, 1, RANK="0"), process(machine, 2, RANK="1")
    machine.switch_to(first)
    assert machine.current is first
    assert os.environ["RANK"] == "0"
    os.environ["MADE_BY"] = "first"
    package.state = mine = object()
    package.Registry.count, package.Registry.instance = 3, mine
    assert [package.helper(0), package.helper(0)] == [1, 2]
    vars(c10d)["_pg_names"]["group"] = "first's"
    c10d._world.pg_names_of_test = "first's"  # type: ignore[attr-defined]
    torch.set_default_dtype(torch.bfloat16)
    machine.life.enter("forward")
    machine.life.activity = "generating"
    machine.memory.devices[torch.device("meta", 0)] = cast(Any, "first's")

    machine.switch_to(second)
    assert dict(os.environ) == {"RANK": "1"}
    assert package.state is None
    assert (package.Registry.count, package.Registry.instance) == (0, None)
    assert package.helper(0) == 1
    assert vars(c10d)["_pg_names"] == {}
    assert not hasattr(c10d._world, "pg_names_of_test")
    assert torch.get_default_dtype() is torch.float32
    assert (machine.life.phase, machine.life.activity) == ("load", "")
    assert list(machine.memory.devices) == [CPU]

    machine.switch_to(first)
    assert dict(os.environ) == {"RANK": "0", "MADE_BY": "first"}
    assert package.state is mine
    assert (package.Registry.count, package.Registry.instance) == (3, mine)
    assert package.helper(0) == 3
    assert vars(c10d)["_pg_names"] == {"group": "first's"}
    assert c10d._world.pg_names_of_test == "first's"  # type: ignore[attr-defined]
    assert torch.get_default_dtype() is torch.bfloat16
    assert (machine.life.phase, machine.life.activity) == ("forward", "generating")
    assert len(machine.memory.devices) == 2


def test_what_is_imported_in_one_turn_is_there_in_all(machine: ClusterDevices, package: Any) -> None:
    first, second = process(machine, 1), process(machine, 2)
    machine.switch_to(first)
    module = imported(f"{PACKAGE}.late", CODE)
    machine.register_new_modules()
    module.state = "first's"
    package.helper = helper = lambda value: value
    machine.switch_to(second)
    assert sys.modules[f"{PACKAGE}.late"] is module
    assert module.state is None  # as it was imported
    assert package.helper is helper  # functions are shared
    machine.switch_to(first)
    assert module.state == "first's"


def test_no_two_processes_name_a_group_alike(machine: ClusterDevices) -> None:
    ranges = []
    for number in (1, 2):
        machine.switch_to(process(machine, number))
        ranges.append(vars(c10d)["_group_count"])
    assert ranges[1] - ranges[0] >= 1000


def test_a_gpu_has_one_record_whatever_its_index(machine: ClusterDevices) -> None:
    kind = "cuda:"
    machine.switch_to(process(machine, 1, node=1, CUDA_VISIBLE_DEVICES="2,3"))
    record = machine.memory._make_device(f"{kind}1")
    machine.switch_to(process(machine, 2, node=1))
    assert machine.memory._make_device(f"{kind}3") is record
    machine.switch_to(process(machine, 3, node=0))
    assert machine.memory._make_device(f"{kind}3") is not record


def test_to_enter_the_current_process_changes_nothing(machine: ClusterDevices, package: Any) -> None:
    first = process(machine, 1)
    machine.switch_to(first)
    package.state = "mine"
    os.environ["MADE_BY"] = "first"
    machine.switch_to(first)
    assert (package.state, os.environ["MADE_BY"]) == ("mine", "first")
