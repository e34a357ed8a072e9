"""What a launch command comes to: one program, started as so many processes, each with its place in the world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from gonogo.evidence.environment.hardware import Machine
from gonogo.finding import Text

ProgramKind = Literal["script", "module"]

UNSPECIFIED_GPU_COUNT = 4096
"""The count of accelerators that a launcher is told where nobody has said one; see :func:`is_unspecified_count`."""


_MAX_RANKS_PER_NODE = 256


def is_unspecified_count(count: int) -> bool:
    """Whether a count came out of :data:`UNSPECIFIED_GPU_COUNT`: as it is, halved, or less what a command excludes."""
    return count > _MAX_RANKS_PER_NODE


class LaunchMachine(msgspec.Struct, frozen=True):
    """What a launcher sees of the machine: the accelerators of each node, and how many nodes were asked for."""

    device_type: str
    product: str
    compute_capability: tuple[int, int]
    total_bytes: int
    count: int
    """Accelerators of a node, or :data:`UNSPECIFIED_GPU_COUNT`."""
    nodes: int | None = None

    @classmethod
    def of(cls, machine: Machine, nodes: int | None) -> LaunchMachine:
        """The surroundings on that machine."""
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

        As in CUDA, the list ends at the first entry that names no device of the machine; an empty value hides all.
        """
        value = environment.get(self.visible_devices_variable)
        if value is None:
            return self.count
        seen: list[str] = []
        for entry in value.split(","):
            name = entry.strip()
            if name.isdigit() and int(name) >= self.count:
                break
            if not name or name.startswith("-") or name in seen:
                break
            seen.append(name)
        return len(seen)


class LaunchedProcess(msgspec.Struct, frozen=True):
    """One process that a launcher starts: its place, its arguments, and how its environment differs."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    node: int
    arguments: tuple[str, ...]
    environment: dict[str, str] = {}
    """Variables that the launcher sets or changes."""
    removed: tuple[str, ...] = ()
    """Variables that the launcher takes away."""


class ResolvedLaunch(msgspec.Struct, frozen=True):
    """A program and the processes that it is started as."""

    launcher: str
    program_kind: ProgramKind
    program: str
    nodes: int
    processes: tuple[LaunchedProcess, ...]
    """By rank."""
    environment: dict[str, str]
    """What every process starts from."""
    cwd: str
    interpreter: str | None = None
    """The Python that the command names by its path, or None."""
    notes: tuple[Text, ...] = ()

    @property
    def world_size(self) -> int:
        """Processes of all nodes."""
        return len(self.processes)

    @property
    def processes_per_node(self) -> int:
        """Processes of the fullest node."""
        return max(process.local_world_size for process in self.processes)
