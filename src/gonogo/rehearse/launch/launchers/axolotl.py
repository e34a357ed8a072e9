"""``axolotl train …``: axolotl's command line, which replaces itself with ``accelerate launch`` or ``torchrun``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any
from unittest.mock import patch

from gonogo.evidence.launch.launchers.axolotl import AXOLOTL
from gonogo.rehearse.launch.launch import LaunchMachine
from gonogo.rehearse.launch.launchers import Launcher, LauncherError, StartedProgram, package_folders
from gonogo.rehearse.launch.launchers.accelerate import capture_accelerate_launch
from gonogo.rehearse.launch.launchers.captured_processes import CapturedProcess, to_started_program

_TRAINING_MODULE = "axolotl.cli.train"
"""The module that each process runs, and that ``--launcher python`` calls in its own process."""


class Axolotl(Launcher):
    """axolotl's command line."""

    described = AXOLOTL

    def start(self, arguments: list[str], surroundings: LaunchMachine) -> StartedProgram:
        """Everything that axolotl would start with those arguments."""
        package_folders("axolotl", self.described.package)
        base = dict(os.environ)

        def run_axolotl() -> None:
            with ExitStack() as stack:
                stack.enter_context(patch.object(os, "execvpe", _run_launcher))
                _run_command_line(stack, arguments)

        try:
            return capture_accelerate_launch(run_axolotl, surroundings)
        except _RunsWithoutLauncher as found:
            alone = CapturedProcess(
                found.command, dict(os.environ), rank=0, local_rank=0, world_size=1, local_world_size=1, node=0
            )
            return to_started_program([alone], base, 1)


class _RunsWithoutLauncher(Exception):
    """Raised if training would run without a launcher; ``command`` runs the same training."""

    def __init__(self, command: list[str]) -> None:
        super().__init__("python")
        self.command = command


def _run_command_line(stack: ExitStack, arguments: list[str]) -> None:
    """Run ``axolotl`` up to the point where it would exec the launcher or start training."""
    training: Any = importlib.import_module(_TRAINING_MODULE)
    trains: Any = importlib.import_module("axolotl.cli.utils.train")
    cloud = ModuleType("axolotl.cli.cloud")  # the real one imports a cloud provider's package
    vars(cloud)["do_cli_train"] = _refuse_cloud
    stack.enter_context(patch.dict(sys.modules, {cloud.__name__: cloud}))
    stack.enter_context(patch.object(training, "do_cli", _record_direct_training))
    stack.enter_context(patch.object(trains, "subprocess", _SweepSubprocess))
    command_line: Any = importlib.import_module("axolotl.cli.main")
    command = arguments[0] if arguments else ""
    if not command:
        raise LauncherError("it is given no command")
    if command != "train" and command in command_line.cli.commands:
        raise LauncherError(f"axolotl {command} starts no training")
    sys.argv = ["axolotl", *arguments]
    command_line.cli()
    raise LauncherError("it ended without starting a training")


def _run_launcher(_program: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Replaces ``os.execvpe``: runs the launcher's own code in this process."""
    with patch.dict(os.environ, environment, clear=True):
        if words[0] == "torchrun":
            run: Any = importlib.import_module("torch.distributed.run")
            run.run(run.parse_args(list(words[1:])))
        else:
            launch: Any = importlib.import_module("accelerate.commands.launch")
            launch.launch_command(launch.launch_command_parser().parse_args(list(words[2:])))


def _record_direct_training(config: str, **options: Any) -> None:
    if options.get("use_ray"):
        raise LauncherError("use_ray has Ray start its processes; rehearse it without, with --launcher torchrun")
    named = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    raise _RunsWithoutLauncher([sys.executable, "-m", _TRAINING_MODULE, config, *named])


def _refuse_cloud(*_args: Any, **_options: Any) -> None:
    raise LauncherError("--cloud trains on a provider's machines; rehearse the command without it")


class _SweepSubprocess:
    """Replaces ``subprocess`` in axolotl for sweeps, each of whose configurations is a training run of its own."""

    class CalledProcessError(Exception):
        """The exception that axolotl would catch."""

    @staticmethod
    def run(*_args: Any, **_options: Any) -> None:
        raise LauncherError("--sweep starts several trainings; rehearse each configuration by itself")
