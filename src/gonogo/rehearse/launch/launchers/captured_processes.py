"""Converts the processes that a launcher would start into a :class:`.launchers.StartedProgram`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gonogo.evidence.launch.command_words import is_python, python_command, shorten_command
from gonogo.evidence.paths import open_for_reading
from gonogo.rehearse.launch.launch import LaunchedProcess, PassedSignals, ProgramKind
from gonogo.rehearse.launch.launchers import LauncherError, StartedProgram


@dataclass(frozen=True)
class CapturedProcess:
    """One process as a launcher passes it to the operating system."""

    command: Sequence[str]
    environment: Mapping[str, str]
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    node: int
    signals: PassedSignals | None = None


def to_started_program(
    spawned_processes: Sequence[CapturedProcess],
    base: Mapping[str, str],
    nodes: int,
    notes: tuple[tuple[str, str], ...] = (),
) -> StartedProgram:
    """The program that all processes run, and how each one differs from the environment ``base``.

    Raises LauncherError if they don't all run the same Python program.
    """
    kind, program, _ = parse_python_program(spawned_processes[0].command)
    processes = []
    for spawn in sorted(spawned_processes, key=lambda spawn: spawn.rank):
        own_kind, own_program, arguments = parse_python_program(spawn.command)
        if (own_kind, own_program) != (kind, program):
            raise LauncherError(f"its processes run different programs: {program} and {own_program}")
        changed = {name: value for name, value in spawn.environment.items() if base.get(name) != value}
        processes.append(
            LaunchedProcess(
                rank=spawn.rank,
                local_rank=spawn.local_rank,
                world_size=spawn.world_size,
                local_world_size=spawn.local_world_size,
                node=spawn.node,
                arguments=arguments,
                environment=dict(sorted(changed.items())),
                removed=tuple(sorted(name for name in base if name not in spawn.environment)),
                signals=spawn.signals,
            )
        )
    return StartedProgram(kind, program, nodes, tuple(processes), notes)


def parse_python_program(command: Sequence[str]) -> tuple[ProgramKind, str, tuple[str, ...]]:
    """The Python program that a process's command line runs, and its arguments.

    If the command isn't a Python interpreter (``--no_python``), it must be a Python script according to its first
    line. Raises LauncherError otherwise.
    """
    if is_python(os.path.basename(command[0])):
        python = python_command(command[1:])
        if python.kind == "script" or python.kind == "module":
            return python.kind, python.target, python.arguments
        raise LauncherError(f"it starts Python without a program: {shorten_command(command)}")
    path = command[0] if os.sep in command[0] else shutil.which(command[0])
    if path is not None and is_python_script(path):
        return "script", path, tuple(command[1:])
    raise LauncherError(f"it starts {command[0]}, which is no Python program; only Python programs can be rehearsed")


def is_python_script(path: str) -> bool:
    """Whether a file has a shebang for Python or, without a shebang, the suffix ``.py``."""
    if not os.path.isfile(path):
        return False
    try:
        with open_for_reading(path) as file:
            first, second = file.readline(200), file.readline(400)
    except OSError:
        return False
    if first.startswith(b"#!"):
        # pip writes `#!/bin/sh` and `'''exec' /long/path/python "$0" "$@"` if the path is too long for a shebang.
        return b"python" in first or second.startswith(b"'''exec'")
    return path.endswith(".py")
