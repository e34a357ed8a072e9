"""The launchers that gonogo knows: one file each in this package, with no register.

A launcher is not imitated: its own code is run, up to the point where it would start its processes, in a process of
its own (:mod:`gonogo.rehearse.launch.capture`), under the user's Python. What it would have started is recorded there.

To add one, describe it in :mod:`gonogo.evidence.launch.launchers`, which ``check`` reads too, and add a file here with
a subclass of :class:`Launcher`, whose :meth:`Launcher.start` runs it and answers what it starts.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import ClassVar

import msgspec

from gonogo.evidence.launch.launchers import LauncherDescription, find_called_launcher
from gonogo.rehearse.launch.launch import LaunchedProcess, LaunchMachine, ProgramKind


class StartedProgram(msgspec.Struct, frozen=True):
    """What a launcher starts: one program, as these processes."""

    program_kind: ProgramKind
    program: str
    nodes: int
    processes: tuple[LaunchedProcess, ...]
    notes: tuple[tuple[str, str], ...] = ()
    """Facts worth telling about how the command was understood, in English and Chinese."""


class LauncherError(Exception):
    """The launcher's own word on why it would not start: an unknown option, a host that is not in the hostfile …"""


def folders_of(module: str, package: str) -> list[str]:
    """Where a package of modules lies; ModuleNotFoundError, with the name that pip knows, where it isn't installed."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {module!r}", name=package)
    return list(spec.submodule_search_locations)


class Launcher(ABC):
    """One launcher's own code, run; one subclass a file."""

    described: ClassVar[LauncherDescription]

    def arguments(self, words: Sequence[str]) -> list[str] | None:
        """The launcher's own arguments, where ``words`` are a call of it; else None."""
        found = find_called_launcher(words)
        return list(words[found[1] :]) if found is not None and found[0] is self.described else None

    @abstractmethod
    def start(self, arguments: list[str], surroundings: LaunchMachine) -> StartedProgram:
        """Run the launcher's own code up to where it would start its processes.

        Called in a process of its own, with the launch's environment and folder. May import torch. Raises
        :class:`LauncherError` with the launcher's own message where it would not start, and ImportError where it is
        not installed.
        """


@cache
def all_launchers() -> tuple[Launcher, ...]:
    """Every launcher of this package, by name."""
    found: dict[str, Launcher] = {}
    for module_info in pkgutil.iter_modules(__path__, f"{__name__}."):
        module = importlib.import_module(module_info.name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Launcher) and value.__module__ == module.__name__:
                found[value.described.name] = value()
    return tuple(found[name] for name in sorted(found))


def find_launcher(words: Sequence[str]) -> tuple[Launcher, list[str]] | None:
    """The launcher that ``words`` call, with its arguments; None where they call no launcher that gonogo knows."""
    for launcher in all_launchers():
        arguments = launcher.arguments(words)
        if arguments is not None:
            return launcher, arguments
    return None
