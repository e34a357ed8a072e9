"""The state of a process: its environment, devices, process groups and the global variables of its packages.

All processes of a rehearsed cluster run in this one, so this state is swapped out and in at each change of turns.
Replaces private names of torch.distributed: the module variables and the ``_world`` of ``distributed_c10d``.

Invariants (``tests/virtual/test_ray_process.py``):

1. One process has the turn (``ClusterDevices.current``). Its state is installed in the interpreter; the state of all
   others is saved in their :class:`RayProcess`. Only the thread that has the turn calls ``enter``, so no locks are
   needed here.
2. A process finds everything as it left it, whoever had turns in between: environment, variables of
   ``distributed_c10d`` and of stateful packages, their classes' counters, lists that are argument defaults,
   devices, the default dtype, the phase.
3. A process that has not run yet finds the packages as they were just after import.
4. Modules, functions and classes are shared and never swapped: what is imported in one turn is there in all.
5. Names of process groups are numbers that C++ keeps per real process, so no two rehearsed ones may use the same.
6. A device's record is the cluster's: processes that see the same GPU, under any index, charge the same record.
7. Entering the process that already has the turn has no effect.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d

from gonogo.virtual.cuda.state import VirtualCuda
from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.memory.tracking import DeviceRecord, MemoryRecord
from gonogo.virtual.tensor import CPU, VirtualTensor

_GROUP_STATE_DEFAULTS: dict[str, Callable[[], Any]] = {
    "_pg_map": dict,
    "_pg_names": dict,
    "_pg_group_ranks": dict,
    "_pg_backend_config": dict,
    "_tags_to_pg": dict,
    "_pg_to_tag": dict,
    "_default_pg_init_method": lambda: None,
}
"""Variables of distributed_c10d with their initial values in a new process."""
_COUNT, _APART = "_group_count", 1000
"""Group names are numbers that C++ keeps per real process, so each rehearsed process has its own range."""
_STATEFUL_MODULES = {
    "accelerate",
    "deepspeed",
    "openrlhf",
    "transfer_queue",
    "transformers.integrations.deepspeed",
    "verl",
}
"""Packages or modules with per-process state; packages that define actors are added to them."""
_SHARED_TYPES = (ModuleType, FunctionType, BuiltinFunctionType, type)


class ClusterDevices:
    """The devices of all nodes, and the state that is swapped when another process's turn begins."""

    def __init__(self, memory: MemoryRecord, lifecycle: Lifecycle, cuda: VirtualCuda | None, per_node: int) -> None:
        self.memory = memory
        self.life = lifecycle
        self.cuda = cuda
        self.per_node = per_node
        self.packages = set(_STATEFUL_MODULES)
        self.current: RayProcess | None = None
        self._made = memory._make_device
        self._records: dict[int, DeviceRecord] = {
            int(device.index): record for device, record in memory.devices.items() if device != CPU
        }
        self._first: dict[str, Values] = {}
        """By module: its variables when it was first seen."""
        self._names: dict[str, _ModuleVariables] = {}
        self._looked = (0, 0)
        self.of_classes: dict[tuple[type, str], Any] = {}
        """Counters and singletons in class attributes of these modules, with their values at that time."""
        self.of_defaults: list[tuple[list[Any], list[Any]]] = []
        """Lists used as argument defaults, in which functions keep state, with their initial contents."""
        memory._make_device = self._device
        if cuda is not None:
            if cuda.blas is not None:
                cuda.blas.process = lambda: self.current
            cuda.physical = lambda index: index if self.current is None else self.current.gpu_at(index)

    def gpu_record(self, gpu: int) -> DeviceRecord:
        """The record of a GPU by its cluster-wide number."""
        record = self._records.get(gpu)
        if record is None:
            record = self._records[gpu] = self._made(f"{VirtualTensor.accelerator_type}:{gpu}")
        return record

    def _device(self, name: str) -> DeviceRecord:
        """The record of a device of the current process, in which ``cuda:1`` may be another process's ``cuda:0``."""
        kind, _, index = name.partition(":")
        if kind == "cpu" or self.current is None:
            return self._made(name)
        return self.gpu_record(self.current.gpu_at(int(index or 0)))

    def switch_to(self, process: RayProcess) -> None:
        """Switch to a process at the start of its turn."""
        before = self.current
        if before is process:
            return
        if before is not None:
            before.save(self)
        self.current = process
        process.restore(self)

    def register_new_modules(self) -> None:
        """Register the variables of modules that were imported since the last call."""
        there = len(sys.modules), len(self.packages)
        if there == self._looked:
            return
        self._looked = there
        for name, module in list(sys.modules.items()):
            if name in self._first or self.packages.isdisjoint((name, name.partition(".")[0])):
                continue
            if isinstance(module, ModuleType):
                self._names[name] = _ModuleVariables(vars(module))
                self._first[name] = self.variables(name)
                classes = [
                    one for one in _attribute_snapshot(module) if isinstance(one, type) and one.__module__ == name
                ]
                self.of_classes.update(_class_attributes(classes))
                self.of_defaults += [(one, list(one)) for one in _list_default_arguments([module, *classes])]

    def initial_variables(self) -> dict[str, Values]:
        """The variables of all stateful modules, as a new process finds them."""
        self.register_new_modules()
        return self._first

    def current_variables(self) -> dict[str, Values]:
        """The variables of all stateful modules, as they are now."""
        self.register_new_modules()
        return {name: self.variables(name) for name in self._first if name in sys.modules}

    def variables(self, module: str) -> Values:
        """The variables of one module."""
        there, names = vars(sys.modules[module]), self._names[module]
        if len(there) != names.count:
            names = self._names[module] = _ModuleVariables(there)
        try:
            return names, names.values(there)
        except KeyError:  # one was deleted and another added
            names = self._names[module] = _ModuleVariables(there)
            return names, names.values(there)

    def all_devices(self) -> dict[Any, DeviceRecord]:
        """All devices by cluster-wide number, for the record of the rehearsal."""
        host = {device: record for device, record in self.memory.devices.items() if device == CPU}
        kind = VirtualTensor.accelerator_type
        return {**host, **{torch.device(kind, gpu): record for gpu, record in sorted(self._records.items())}}


class _ModuleVariables:
    """The names of a module's variables, with a getter for all at once, since turns change many thousands of
    times."""

    def __init__(self, variables: dict[str, Any]) -> None:
        self.count = len(variables)
        self.names = tuple(
            name
            for name, value in list(variables.items())
            if not name.startswith("__") and not isinstance(value, _SHARED_TYPES)
        )
        self.values: Callable[[dict[str, Any]], tuple[Any, ...]] = operator.itemgetter(*self.names, *_MODULE_ATTRIBUTES)

    def set_values(self, values: tuple[Any, ...], variables: dict[str, Any]) -> None:
        """Set the variables to ``values``."""
        try:
            if all(map(operator.is_, values, self.values(variables))):
                return
        except KeyError:
            pass
        for name, value in zip(self.names, values, strict=False):
            if variables.get(name) is not value:
                variables[name] = value


_MODULE_ATTRIBUTES = ("__name__", "__doc__")
"""Names that every module has, since ``itemgetter`` with a single name would not return a tuple."""
Values = tuple[_ModuleVariables, tuple[Any, ...]]


def _attribute_snapshot(owner: Any) -> list[Any]:
    """A snapshot of the attributes, since threads without a turn may import meanwhile."""
    return list(vars(owner).values())


def _list_default_arguments(owners: list[Any]) -> list[list[Any]]:
    """The lists among the default arguments of the owners' functions, which processes must not share."""
    functions = [one for owner in owners for one in _attribute_snapshot(owner) if isinstance(one, FunctionType)]
    return [value for one in functions for value in one.__defaults__ or () if type(value) is list]


def _class_attributes(classes: list[type]) -> dict[tuple[type, str], Any]:
    return {
        (kind, name): value
        for kind in classes
        if not issubclass(kind, Enum)
        for name, value in list(vars(kind).items())
        if not name.startswith("__") and (value is None or type(value) is int)
    }


class RayProcess:
    """One process of the cluster. ``gpus`` are the numbers, within its node, of the GPUs assigned to it."""

    def __init__(
        self,
        number: int,
        name: str,
        cluster_devices: ClusterDevices,
        environment: dict[str, str],
        node: int,
        gpus: tuple[int, ...],
    ) -> None:
        self.number = number
        self.name = name
        self.environment = environment
        self.node = node
        self.gpus = gpus
        self._machine = cluster_devices
        self._groups: dict[str, Any] = {name: make() for name, make in _GROUP_STATE_DEFAULTS.items()}
        self._groups[_COUNT] = number * _APART
        self._world: dict[str, Any] = vars(c10d._World()).copy() if hasattr(c10d, "_World") else {}
        self._variables: dict[str, Values] | None = None
        self._of_classes: dict[tuple[type, str], Any] | None = None
        self._of_defaults: list[list[Any]] | None = None
        self._devices: dict[Any, DeviceRecord] = {}
        self._cuda = (0, False)
        self._dtype = torch.float32
        self._phase: Any = "load"
        self._activity = ""

    def gpu_at(self, index: int) -> int:
        """The cluster-wide number of the GPU that has this index in the process."""
        listed = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
        if "CUDA_VISIBLE_DEVICES" in os.environ and index < len(listed) and listed[index].isdecimal():
            index = int(listed[index])
        return self.node * self._machine.per_node + index

    def save(self, cluster_devices: ClusterDevices) -> None:
        """Save the process's state at the end of its turn."""
        self.environment = dict(os.environ)
        for name in self._groups:
            self._groups[name] = getattr(c10d, name, None)
        self._world = dict(vars(c10d._world))
        self._variables = cluster_devices.current_variables()
        self._of_classes = {(kind, name): vars(kind).get(name) for kind, name in cluster_devices.of_classes}
        self._of_defaults = [list(kept) for kept, _ in cluster_devices.of_defaults]
        self._devices = {
            device: record for device, record in list(cluster_devices.memory.devices.items()) if device != CPU
        }
        if cluster_devices.cuda is not None:
            self._cuda = (cluster_devices.cuda.count, cluster_devices.cuda.initialized)
        self._dtype = torch.get_default_dtype()
        self._phase, self._activity = cluster_devices.life.phase, cluster_devices.life.activity

    def restore(self, cluster_devices: ClusterDevices) -> None:
        """Install the process's state at the start of its turn."""
        _set_environment(self.environment)
        for name, value in self._groups.items():
            if hasattr(c10d, name):
                setattr(c10d, name, value)
        vars(c10d._world).clear()
        vars(c10d._world).update(self._world)
        for module_name, (names, values) in (
            cluster_devices.initial_variables() if self._variables is None else self._variables
        ).items():
            if module_name in sys.modules:
                names.set_values(values, vars(sys.modules[module_name]))
        for (kind, name), value in (
            cluster_devices.of_classes if self._of_classes is None else self._of_classes
        ).items():
            if vars(kind).get(name) is not value:
                setattr(kind, name, value)
        for index, (kept, first) in enumerate(cluster_devices.of_defaults):
            known = self._of_defaults is not None and index < len(self._of_defaults)
            kept[:] = self._of_defaults[index] if self._of_defaults is not None and known else first
        devices = cluster_devices.memory.devices
        for device in [device for device in devices if device != CPU]:
            del devices[device]
        devices.update(self._devices)
        if cluster_devices.cuda is not None:
            cluster_devices.cuda.count, cluster_devices.cuda.initialized = self._cuda
        torch.set_default_dtype(self._dtype)
        if cluster_devices.life.phase != self._phase:
            cluster_devices.life.enter(self._phase)
        cluster_devices.life.activity = self._activity


def _set_environment(variables: dict[str, str]) -> None:
    for name in [name for name in os.environ if name not in variables]:
        del os.environ[name]
    for name, value in variables.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
