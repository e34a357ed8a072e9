"""``llamafactory-cli train …``: LLaMA-Factory, which starts itself with torchrun if the machine has several GPUs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any
from unittest.mock import patch

from gonogo.evidence.launch.launchers.llamafactory import LLAMAFACTORY
from gonogo.rehearse.launch.launch import LaunchMachine
from gonogo.rehearse.launch.launchers import Launcher, LauncherError, StartedProgram, package_folders
from gonogo.rehearse.launch.launchers.captured_processes import CapturedProcess, to_started_program
from gonogo.rehearse.launch.launchers.torchrun import torchrun_processes
from gonogo.rehearse.launch.torch_devices import with_virtual_devices

# The modules that train, if the command line doesn't start torchrun.
_TRAINING_MODULES = ("llamafactory.train.tuner", "llamafactory.v1.trainers.sft_trainer")
_CONFIG_SUFFIXES = (".yaml", ".yml", ".json")


class LlamaFactory(Launcher):
    """LLaMA-Factory's command line."""

    described = LLAMAFACTORY

    def start(self, arguments: list[str], surroundings: LaunchMachine) -> StartedProgram:
        """Everything that LLaMA-Factory would start with those arguments."""
        package_folders("llamafactory", self.described.package)
        base = dict(os.environ)
        if _is_env_enabled("USE_RAY"):
            raise LauncherError("USE_RAY has Ray start its processes; rehearse it with FORCE_TORCHRUN=1 in its place")
        for word in arguments[1:2]:
            if word.endswith(_CONFIG_SUFFIXES):
                _check_readable(word)
        with ExitStack() as stack:
            stack.enter_context(with_virtual_devices(surroundings))
            try:
                _run_command_line(stack, arguments)
            except _TorchrunCalled as found:
                run = importlib.import_module("torch.distributed.run")
                with patch.dict(os.environ, found.environment, clear=True):
                    return torchrun_processes(run.parse_args(found.arguments), base, surroundings)
            except _RunsWithoutLauncher:
                return to_started_program([_single_process()], base, 1)
            except (NotImplementedError, OSError, ValueError) as error:
                raise LauncherError(str(error)) from error
        raise LauncherError(f"`{' '.join(arguments[:1])}` starts no training")


class _TorchrunCalled(Exception):
    """Carries torchrun's arguments out of LLaMA-Factory."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str]) -> None:
        super().__init__("torchrun")
        self.arguments = arguments
        self.environment = dict(environment)


class _RunsWithoutLauncher(Exception):
    """Raised if training would run without a launcher."""


def _is_env_enabled(variable: str) -> bool:
    """The same as LLaMA-Factory's ``is_env_enabled``."""
    return os.environ.get(variable, "0").lower() in ("true", "y", "1")


def _check_readable(path: str) -> None:
    """Raise LauncherError for a config that can't be opened: each process of the training would fail on it."""
    try:
        with open(path, "rb"):
            return
    except OSError as error:
        raise LauncherError(str(error)) from error


def _run_command_line(stack: ExitStack, arguments: list[str]) -> None:
    """Run ``llamafactory-cli`` up to torchrun or the training."""
    run_for_real: Callable[..., Any] = subprocess.run

    def capture_torchrun(command: str | Sequence[str], *args: Any, **options: Any) -> Any:
        words = shlex.split(command) if isinstance(command, str) else list(command)
        if words[:1] != ["torchrun"]:
            return run_for_real(command, *args, **options)
        raise _TorchrunCalled(words[1:], options.get("env") or os.environ)

    stack.enter_context(patch.object(subprocess, "run", capture_torchrun))
    stack.enter_context(patch.dict(sys.modules, {name: _make_stub_module(name) for name in _TRAINING_MODULES}))
    sys.argv = ["llamafactory-cli", *arguments]
    misc: Any = importlib.import_module("llamafactory.extras.misc")
    if hasattr(misc, "find_available_port"):
        # Which port is free here says nothing about the machine of the run.
        stack.enter_context(patch.object(misc, "find_available_port", lambda: 29500))
    command_line: Any = importlib.import_module("llamafactory.cli")
    command_line.main()


def _make_stub_module(name: str) -> ModuleType:
    """A module whose functions report that training would start; the real one imports everything."""
    module = ModuleType(name)

    def end_without_launcher(*_args: Any, **_options: Any) -> Any:
        raise _RunsWithoutLauncher

    def module_attribute(name: str) -> Any:
        if name.startswith("__"):  # code that inspects all modules reads such attributes
            raise AttributeError(name)
        return end_without_launcher

    vars(module)["__getattr__"] = module_attribute
    return module


def _single_process() -> CapturedProcess:
    """Training in a single process, with the file that torchrun would run, which calls the same function."""
    arguments = sys.argv[1:]
    name = "llamafactory.launcher"
    if _is_env_enabled("USE_V1"):
        name, arguments = "llamafactory.v1.launcher", ["train", *arguments]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise LauncherError(f"this version has no {name}")
    command = [sys.executable, spec.origin, *arguments]
    return CapturedProcess(command, dict(os.environ), rank=0, local_rank=0, world_size=1, local_world_size=1, node=0)
