"""``accelerate launch …``: settings go by ``ACCELERATE_*`` variables; torchrun or DeepSpeed starts the program."""

from __future__ import annotations

import importlib
import io
import os
import shlex
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec

from gonogo.evidence.launch.launchers.accelerate import ACCELERATE
from gonogo.rehearse.launch.launch import LaunchMachine
from gonogo.rehearse.launch.launchers import Launcher, LauncherError, StartedProgram
from gonogo.rehearse.launch.launchers.captured_processes import CapturedProcess, to_started_program
from gonogo.rehearse.launch.launchers.deepspeed import DeepSpeed
from gonogo.rehearse.launch.launchers.torchrun import torchrun_processes
from gonogo.rehearse.launch.torch_devices import with_virtual_devices


class Accelerate(Launcher):
    """Hugging Face accelerate's launcher."""

    described = ACCELERATE

    def start(self, arguments: list[str], surroundings: LaunchMachine) -> StartedProgram:
        """Everything that accelerate would start with those arguments."""
        launch = importlib.import_module("accelerate.commands.launch")
        return capture_accelerate_launch(
            lambda: launch.launch_command(launch.launch_command_parser().parse_args(arguments)), surroundings
        )


def capture_accelerate_launch(call: Callable[[], object], surroundings: LaunchMachine) -> StartedProgram:
    """What ``call`` would start, which ends in accelerate's ``launch_command`` or in torchrun's ``run``."""
    launch = importlib.import_module("accelerate.commands.launch")
    run = importlib.import_module("torch.distributed.run")
    base = dict(os.environ)
    parsed: list[Any] = []
    launched = launch.launch_command

    def launch_command(arguments: Any) -> None:
        parsed.append(arguments)
        launched(arguments)

    with ExitStack() as stack:
        stack.enter_context(with_virtual_devices(surroundings))
        _patch_accelerate(stack, launch, surroundings)
        stack.enter_context(patch.object(run, "run", _raise_torchrun))
        # Before a framework imports it by name.
        stack.enter_context(patch.object(launch, "launch_command", launch_command))
        try:
            call()
        except _TorchrunCalled as found:
            with patch.dict(os.environ, found.environment, clear=True):
                notes = _default_config_notes(parsed[-1], launch) if parsed else ()
                return torchrun_processes(found.arguments, base, surroundings, notes)
        except _CommandCalled as found:
            nodes = max(surroundings.nodes or 1, parsed[-1].num_machines or 1)
            several = msgspec.structs.replace(surroundings, nodes=nodes)
            return _start_by_command(found, base, several, _default_config_notes(parsed[-1], launch))
        except ModuleNotFoundError as error:
            if not parsed:
                raise
            raise LauncherError(str(error)) from error
        except (ValueError, AssertionError, KeyError, OSError, NotImplementedError, ImportError) as error:
            raise LauncherError(str(error) or type(error).__name__) from error
    raise LauncherError("it ended without starting anything")


class _TorchrunCalled(Exception):
    """Carries torchrun's arguments out of accelerate."""

    def __init__(self, arguments: Any) -> None:
        super().__init__("torchrun")
        self.arguments = arguments
        self.environment = dict(os.environ)


class _CommandCalled(Exception):
    """Passes a command out of accelerate, instead of running it."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        super().__init__("command")
        self.command = command
        self.environment = dict(environment)


def _raise_torchrun(arguments: Any) -> None:
    raise _TorchrunCalled(arguments)


def _raise_command(command: list[str], env: Mapping[str, str], **_options: Any) -> Any:
    raise _CommandCalled(command, env)


def _patch_accelerate(stack: ExitStack, launch: Any, surroundings: LaunchMachine) -> None:
    """Prevent accelerate from starting processes, writing ``.deepspeed_env`` and checking this machine's ports."""
    utilities = importlib.import_module("accelerate.utils.launch")
    stack.enter_context(patch.object(launch, "subprocess", SimpleNamespace(Popen=_raise_command)))
    stack.enter_context(patch.object(launch, "open", lambda *_args, **_kwargs: io.StringIO(), create=True))
    # Whether a port is free here says nothing about the machine of the run.
    stack.enter_context(patch.object(utilities, "is_port_in_use", lambda *_args: False))
    stack.enter_context(patch.object(utilities, "get_free_port", lambda: 29500, create=True))
    if surroundings.device_type == "npu":
        for module in (launch, utilities):
            stack.enter_context(patch.object(module, "is_npu_available", lambda *_args: True))


def _start_by_command(
    resolved: _CommandCalled, base: Mapping[str, str], surroundings: LaunchMachine, notes: tuple[tuple[str, str], ...]
) -> StartedProgram:
    """The program of a command that accelerate would run: through ``deepspeed`` for several nodes, else directly."""
    if resolved.command[0] == "deepspeed":
        with patch.dict(os.environ, resolved.environment, clear=True):
            arguments = resolved.command[1:]
            if arguments[:2] == ["--hostfile", "None"]:  # no hostfile was given
                arguments = arguments[2:]
            across = DeepSpeed().start(arguments, surroundings)
        spawned = [
            CapturedProcess(
                command=[
                    "python",
                    *(["-m"] if across.program_kind == "module" else []),
                    across.program,
                    *own.arguments,
                ],
                environment={
                    **{name: value for name, value in resolved.environment.items() if name not in own.removed},
                    **own.environment,
                },
                rank=own.rank,
                local_rank=own.local_rank,
                world_size=own.world_size,
                local_world_size=own.local_world_size,
                node=own.node,
                signals=own.signals,
            )
            for own in across.processes
        ]
        return to_started_program(spawned, base, across.nodes, (*notes, *across.notes))
    alone = CapturedProcess(
        resolved.command, resolved.environment, rank=0, local_rank=0, world_size=1, local_world_size=1, node=0
    )
    return to_started_program([alone], base, 1, notes)


def _default_config_notes(args: Any, launch: Any) -> tuple[tuple[str, str], ...]:
    default = launch.default_config_file
    if args.config_file is not None or not (os.path.isfile(default) and not args.cpu):
        return ()
    path = shlex.quote(str(default))
    return (
        (
            f"accelerate launch names no --config_file: its settings come from this machine's default, {path}",
            f"accelerate launch 没有给出 --config_file：其设置来自本机的默认配置 {path}",
        ),
    )
