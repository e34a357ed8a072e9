"""The result of resolving a launch command: one program and its processes, with their ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from gonogo.evidence.environment.hardware import Machine
from gonogo.finding import Text

ProgramKind = Literal["script", "module"]

UNSPECIFIED_GPU_COUNT = 4096
"""The number of accelerators that a launcher is told if none is specified; see :func:`is_unspecified_count`."""


MAX_RANKS_PER_NODE = 256


def is_unspecified_count(count: int) -> bool:
    """Whether a count derives from :data:`UNSPECIFIED_GPU_COUNT`: the same, halved, or without excluded devices."""
    return count > MAX_RANKS_PER_NODE


class LaunchMachine(msgspec.Struct, frozen=True):
    """The machine that a launcher sees: the accelerators of each node and the requested number of nodes."""

    device_type: str
    product: str
    compute_capability: tuple[int, int]
    total_bytes: int
    count: int
    """Accelerators of a node, or :data:`UNSPECIFIED_GPU_COUNT`."""
    nodes: int | None = None

    @classmethod
    def from_machine(cls, machine: Machine, nodes: int | None) -> LaunchMachine:
        """What a launcher sees of that machine."""
        accelerator = machine.accelerator
        return cls(
            device_type=accelerator.device_type,
            product=accelerator.product,
            compute_capability=accelerator.compute_capability,
            total_bytes=accelerator.total_bytes,
            count=machine.count,
            nodes=nodes,
        )

    @property
    def visible_devices_variable(self) -> str:
        """The environment variable that limits which accelerators a process sees."""
        return "ASCEND_RT_VISIBLE_DEVICES" if self.device_type == "npu" else "CUDA_VISIBLE_DEVICES"

    def visible_count(self, environment: Mapping[str, str]) -> int:
        """How many accelerators a process with that environment sees.

        As in CUDA, the list ends at the first entry that names no device of the machine; an empty value hides all
        devices.
        """
        value = environment.get(self.visible_devices_variable)
        if value is None:
            return self.count
        seen: list[str] = []
        for entry in value.split(","):
            name = entry.strip()
            if name.isdecimal() and int(name) >= self.count:
                break
            if not name or name.startswith("-") or name in seen:
                break
            seen.append(name)
        return len(seen)


class PassedSignals(msgspec.Struct, frozen=True):
    """Which signals a launcher passes on to the processes that it starts; any other one ends the launcher alone."""

    launcher: str
    names: tuple[str, ...]
    seconds: int
    """How long after one of them it kills the processes that are still there."""


class LaunchedProcess(msgspec.Struct, frozen=True):
    """One process that a launcher starts: its rank, its arguments, and how its environment differs."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    node: int
    arguments: tuple[str, ...]
    environment: dict[str, str] = {}
    """Variables that the launcher sets or changes."""
    removed: tuple[str, ...] = ()
    """Variables that the launcher removes."""
    signals: PassedSignals | None = None
    """None if no launcher stays between a scheduler and the process."""


class ResolvedLaunch(msgspec.Struct, frozen=True):
    """A program and the processes in which it runs."""

    launcher: str
    program_kind: ProgramKind
    program: str
    nodes: int
    processes: tuple[LaunchedProcess, ...]
    """In the order of their ranks."""
    environment: dict[str, str]
    """The environment common to all processes."""
    cwd: str
    interpreter: str | None = None
    """The Python that the command names by its path, or None."""
    notes: tuple[Text, ...] = ()

    @property
    def world_size(self) -> int:
        """The number of processes on all nodes."""
        return len(self.processes)

    @property
    def processes_per_node(self) -> int:
        """The largest number of processes on a node."""
        return max(process.local_world_size for process in self.processes)
