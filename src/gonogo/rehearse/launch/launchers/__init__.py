"""The launchers that gonogo knows: one file each in this package, without a registry.

A launcher is never imitated. Its own code runs up to the point where it would start its processes, in a separate
process (:mod:`gonogo.rehearse.launch.capture`) and under the user's Python, and what it would start is recorded.

To add one, describe it in :mod:`gonogo.evidence.launch.launchers`, which ``check`` reads too, and add a file here
with a subclass of :class:`Launcher`, whose :meth:`Launcher.start` runs it and returns what it would start.
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
    """What a launcher starts: one program in these processes."""

    program_kind: ProgramKind
    program: str
    nodes: int
    processes: tuple[LaunchedProcess, ...]
    notes: tuple[tuple[str, str], ...] = ()
    """Facts worth telling about how the command was understood, in English and Chinese."""


class LauncherError(Exception):
    """The launcher's own error message: an unknown option, a host that is not in the hostfile …"""


def package_folders(module: str, package: str) -> list[str]:
    """The folders of a package's modules. Raises ModuleNotFoundError with the name for pip if it isn't installed."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {module!r}", name=package)
    return list(spec.submodule_search_locations)


class Launcher(ABC):
    """Runs one launcher's own code; each subclass has its own file."""

    described: ClassVar[LauncherDescription]

    def arguments(self, words: Sequence[str]) -> list[str] | None:
        """The launcher's own arguments if ``words`` are a call of it, else None."""
        found = find_called_launcher(words)
        return list(words[found[1] :]) if found is not None and found[0] is self.described else None

    @abstractmethod
    def start(self, arguments: list[str], surroundings: LaunchMachine) -> StartedProgram:
        """Run the launcher's own code up to where it would start its processes.

        Called in a separate process, with the launch's environment and folder. May import torch. Raises
        :class:`LauncherError` with the launcher's own message if it would not start, and ImportError if it isn't
        installed.
        """


@cache
def all_launchers() -> tuple[Launcher, ...]:
    """An instance of every launcher in this package, sorted by name."""
    found: dict[str, Launcher] = {}
    for module_info in pkgutil.iter_modules(__path__, f"{__name__}."):
        module = importlib.import_module(module_info.name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Launcher) and value.__module__ == module.__name__:
                found[value.described.name] = value()
    return tuple(found[name] for name in sorted(found))


def find_launcher(words: Sequence[str]) -> tuple[Launcher, list[str]] | None:
    """The launcher that ``words`` call, with its arguments; None if gonogo doesn't know it."""
    for launcher in all_launchers():
        arguments = launcher.arguments(words)
        if arguments is not None:
            return launcher, arguments
    return None
