"""``swift sft …``: ms-swift, which starts itself with torchrun if ``NPROC_PER_NODE`` or ``NNODES`` is set."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from gonogo.evidence.launch.launchers.swift import SWIFT
from gonogo.rehearse.launch.launch import LaunchMachine
from gonogo.rehearse.launch.launchers import Launcher, LauncherError, StartedProgram, package_folders
from gonogo.rehearse.launch.launchers.captured_processes import CapturedProcess, to_started_program
from gonogo.rehearse.launch.launchers.torchrun import torchrun_processes
from gonogo.rehearse.launch.torch_devices import with_virtual_devices


class Swift(Launcher):
    """ms-swift's command line."""

    described = SWIFT

    def start(self, arguments: list[str], surroundings: LaunchMachine) -> StartedProgram:
        """Everything that ms-swift would start with those arguments."""
        base = dict(os.environ)
        command = _underlying_command(arguments)
        words = command[1:]
        if words[:2] == ["-m", "torch.distributed.run"]:
            run = importlib.import_module("torch.distributed.run")
            with with_virtual_devices(surroundings):
                return torchrun_processes(run.parse_args(words[2:]), base, surroundings)
        alone = CapturedProcess(
            command, dict(os.environ), rank=0, local_rank=0, world_size=1, local_world_size=1, node=0
        )
        return to_started_program([alone], base, 1)


class _CommandCaptured(Exception):
    """Passes the command out of ms-swift's ``main``, instead of running it."""

    def __init__(self, words: list[str]) -> None:
        super().__init__("command")
        self.words = words


def _underlying_command(arguments: list[str]) -> list[str]:
    """The command that ``swift`` would run. Changes ``os.environ`` as ``swift`` does."""
    main = _import_cli_main()

    def capture_command(words: list[str], **_options: Any) -> Any:
        raise _CommandCaptured(list(words))

    main.subprocess = SimpleNamespace(run=capture_command)
    sys.argv = ["swift", *arguments]
    try:
        main.cli_main()
    except _CommandCaptured as found:
        return found.words
    except KeyError as error:
        raise LauncherError(f"it has no command {error}") from error
    except (IndexError, OSError, ValueError) as error:
        raise LauncherError(str(error) or "it is given no command") from error
    raise LauncherError("it ended without starting anything")


def _import_cli_main() -> Any:
    """ms-swift's ``cli.main``, without the rest of ms-swift, whose import takes many seconds."""
    package = ModuleType("swift")
    package.__path__ = package_folders("swift", SWIFT.package)
    utilities = ModuleType("swift.utils")
    vars(utilities)["get_logger"] = lambda *_args, **_kwargs: logging.getLogger("swift")
    sys.modules["swift"], sys.modules["swift.utils"] = package, utilities
    return importlib.import_module("swift.cli.main")
