"""``llamafactory-cli train …``: LLaMA-Factory, which starts itself by torchrun where the machine has several GPUs."""

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
from gonogo.rehearse.launch.launchers import Launcher, LauncherError, StartedProgram, folders_of
from gonogo.rehearse.launch.launchers.captured_processes import CapturedProcess, started
from gonogo.rehearse.launch.launchers.torchrun import processes_of
from gonogo.rehearse.launch.torch_devices import with_virtual_devices

# Where the training starts, where the command line runs it in its own process.
_TRAINING = ("llamafactory.train.tuner", "llamafactory.v1.trainers.sft_trainer")
_CONFIG_SUFFIXES = (".yaml", ".yml", ".json")


class LlamaFactory(Launcher):
    """The command line of LLaMA-Factory."""

    described = LLAMAFACTORY

    def start(self, arguments: list[str], surroundings: LaunchMachine) -> StartedProgram:
        """What LLaMA-Factory starts with those arguments."""
        folders_of("llamafactory", self.described.package)
        base = dict(os.environ)
        if _is_env_enabled("USE_RAY"):
            raise LauncherError("USE_RAY has Ray start its processes; rehearse it with FORCE_TORCHRUN=1 in its place")
        for word in arguments[1:2]:
            if word.endswith(_CONFIG_SUFFIXES):
                _read(word)
        with ExitStack() as stack:
            stack.enter_context(with_virtual_devices(surroundings))
            try:
                _run_command_line(stack, arguments)
            except _TorchrunCalled as found:
                run = importlib.import_module("torch.distributed.run")
                with patch.dict(os.environ, found.environment, clear=True):
                    return processes_of(run.parse_args(found.arguments), base, surroundings)
            except _RunsWithoutLauncher:
                return started([_alone()], base, 1)
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
    """Says that the training would have been run without a launcher."""


def _is_env_enabled(variable: str) -> bool:
    """As LLaMA-Factory's ``is_env_enabled`` has it."""
    return os.environ.get(variable, "0").lower() in ("true", "y", "1")


def _read(path: str) -> None:
    """Raise Refused for a configuration that the training could not open: each of its processes would fail on it."""
    try:
        with open(path, "rb"):
            return
    except OSError as error:
        raise LauncherError(str(error)) from error


def _run_command_line(stack: ExitStack, arguments: list[str]) -> None:
    """Run ``llamafactory-cli`` up to torchrun or the training."""
    run_for_real: Callable[..., Any] = subprocess.run

    def run(command: str | Sequence[str], *args: Any, **options: Any) -> Any:
        words = shlex.split(command) if isinstance(command, str) else list(command)
        if words[:1] != ["torchrun"]:
            return run_for_real(command, *args, **options)
        raise _TorchrunCalled(words[1:], options.get("env") or os.environ)

    stack.enter_context(patch.object(subprocess, "run", run))
    stack.enter_context(patch.dict(sys.modules, {name: _make_stub_module(name) for name in _TRAINING}))
    sys.argv = ["llamafactory-cli", *arguments]
    misc: Any = importlib.import_module("llamafactory.extras.misc")
    if hasattr(misc, "find_available_port"):
        # Which port is free on this machine says nothing of the machine that the run will have.
        stack.enter_context(patch.object(misc, "find_available_port", lambda: 29500))
    command_line: Any = importlib.import_module("llamafactory.cli")
    command_line.main()


def _make_stub_module(name: str) -> ModuleType:
    """A module whose functions say that the training would have started; its real one imports everything."""
    module = ModuleType(name)

    def ends(*_args: Any, **_options: Any) -> Any:
        raise _RunsWithoutLauncher

    def attribute(name: str) -> Any:
        if name.startswith("__"):  # what walks through all modules asks each for its file
            raise AttributeError(name)
        return ends

    vars(module)["__getattr__"] = attribute
    return module


def _alone() -> CapturedProcess:
    """The training in one process: by the file that torchrun would be given, which runs the same function."""
    arguments = sys.argv[1:]
    name = "llamafactory.launcher"
    if _is_env_enabled("USE_V1"):
        name, arguments = "llamafactory.v1.launcher", ["train", *arguments]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise LauncherError(f"this version has no {name}")
    command = [sys.executable, spec.origin, *arguments]
    return CapturedProcess(command, dict(os.environ), rank=0, local_rank=0, world_size=1, local_world_size=1, node=0)
