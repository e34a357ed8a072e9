"""``deepspeed …``: DeepSpeed's runner, and the launcher that the runner starts on each node."""

from __future__ import annotations

import base64
import importlib
import json
import logging
import os
import sys
from collections import OrderedDict
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

from gonogo.evidence.launch.launchers.deepspeed import DEEPSPEED
from gonogo.rehearse.launch.launch import LaunchMachine, PassedSignals
from gonogo.rehearse.launch.launchers import Launcher, LauncherError, StartedProgram, package_folders
from gonogo.rehearse.launch.launchers.captured_processes import CapturedProcess, to_started_program


class DeepSpeed(Launcher):
    """DeepSpeed's launcher, on one node or, by pdsh, on several."""

    described = DEEPSPEED

    def start(self, arguments: list[str], surroundings: LaunchMachine) -> StartedProgram:
        """Everything that DeepSpeed would start with those arguments."""
        runner, launch = _launcher_modules(_Accelerator(surroundings))
        base = dict(os.environ)
        notes: list[tuple[str, str]] = []
        node_command = _capture_node_command(runner, arguments, surroundings, notes)
        os.environ.clear()
        os.environ.update(node_command.environment)
        spawns: list[CapturedProcess] = []
        nodes = len(node_command.world)
        for node in range(nodes):
            spawns += _capture_node_processes(launch, node_command, node, surroundings)
        return to_started_program(spawns, base, nodes, tuple(notes))


class _Accelerator:
    """The parts of ``get_accelerator()`` that the launchers use, for the virtual machine; doesn't import torch."""

    def __init__(self, surroundings: LaunchMachine) -> None:
        self._surroundings = surroundings

    def visible_devices_envs(self) -> list[str]:
        return [self._surroundings.visible_devices_variable]

    def set_visible_devices_envs(self, environment: dict[str, str], local_ids: list[int]) -> None:
        environment[self._surroundings.visible_devices_variable] = ",".join(map(str, local_ids))

    def device_count(self) -> int:
        return self._surroundings.visible_count(os.environ)

    def export_envs(self) -> list[str]:
        return ["NCCL"] if self._surroundings.device_type == "cuda" else ["ASCEND", "HCCL"]


class _FakeProcess:
    """Stands in for a process that was not started."""

    pid = 0
    returncode = 0

    def poll(self) -> int:
        return 0


class _NodeCommandCaptured(Exception):
    """Passes a command out of DeepSpeed's ``main``, instead of running it."""

    def __init__(self, words: list[str], environment: Mapping[str, str]) -> None:
        super().__init__("launcher of a node")
        self.words = words
        self.environment = dict(environment)
        encoded = next(word.partition("=")[2] for word in words if word.startswith("--world_info="))
        self.world: dict[str, list[int]] = json.loads(base64.urlsafe_b64decode(encoded))


def _launcher_modules(accelerator: _Accelerator) -> tuple[ModuleType, ModuleType]:
    """DeepSpeed's own ``launcher.runner`` and ``launcher.launch``, if possible without the rest of DeepSpeed.

    The two modules need little of the package, whose import takes seconds and fails for a DeepSpeed that is older
    than torch, because torch has moved names. What they need is replaced; a version that needs more is imported
    completely.
    """
    folder = package_folders("deepspeed", DEEPSPEED.package)[0]
    log = logging.getLogger("DeepSpeed")
    parts: dict[str, dict[str, Any]] = {
        "deepspeed": {},
        "deepspeed.accelerator": {"get_accelerator": lambda: accelerator},
        "deepspeed.utils": {
            "logger": log,
            "get_numactl_cmd": lambda *_args: (1, []),
            "set_log_level_from_string": lambda *_args, **_kwargs: None,
        },
        "deepspeed.autotuning": {"Autotuner": None},
        "deepspeed.elasticity": {"is_torch_elastic_compatible": lambda: False},
    }
    for name, values in parts.items():
        module = ModuleType(name)
        module.__path__ = [os.path.join(folder, *name.split(".")[1:])]
        vars(module).update(values)
        sys.modules[name] = module
    try:
        return _import_launcher()
    except ImportError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "deepspeed"]:
            del sys.modules[name]
        runner, launch = _import_launcher()
        for whole in (runner, launch):
            vars(whole)["get_accelerator"] = lambda: accelerator
        return runner, launch


def _import_launcher() -> tuple[ModuleType, ModuleType]:
    return importlib.import_module("deepspeed.launcher.runner"), importlib.import_module("deepspeed.launcher.launch")


def _capture_node_command(
    runner: Any, arguments: list[str], surroundings: LaunchMachine, notes: list[tuple[str, str]]
) -> _NodeCommandCaptured:
    """The command that the runner would execute on each node; runs the runner's ``main`` up to that point."""
    parsed_by_deepspeed = runner.parse_args
    fetched_by_deepspeed = runner.fetch_hostfile
    nodes = surroundings.nodes or 1

    def parse_args(args: list[str] | None = None) -> Any:
        nonlocal nodes
        parsed = parsed_by_deepspeed(args)
        if parsed.autotuning:
            raise LauncherError("--autotuning runs many experiments on the GPUs; rehearse the command without it")
        # These write files, or bind to cores that the machine doesn't have.
        parsed.enable_each_rank_log, parsed.save_pid = "None", False
        parsed.bind_cores_to_rank, parsed.bind_core_list = False, None
        parsed.elastic_training = False
        nodes = max(nodes, parsed.num_nodes)
        return parsed

    def fetch_hostfile(path: str) -> Any:
        hosts = fetched_by_deepspeed(path)
        if hosts is not None or nodes == 1:
            return hosts
        # The hostfile is on the cluster; --num_nodes or gonogo's --nodes give the number of its lines.
        notes.append(
            (
                f"the hostfile {path} is not on this machine: {nodes} nodes of one kind were taken for it",
                f"本机没有 hostfile {path}：按 {nodes} 个相同的节点处理",
            )
        )
        return OrderedDict((f"node-{index}", surroundings.count) for index in range(nodes))

    def replace_multinode_runner(launcher: str) -> Any:
        def capture_node_command(args: Any, world_info: str, *_pool: Any) -> Any:
            if launcher != "PDSHRunner":
                name = launcher.removesuffix("Runner")
                raise LauncherError(f"its processes would be started by {name}; gonogo knows --launcher pdsh")
            raise _NodeCommandCaptured(_format_node_command(args, world_info), os.environ)

        return capture_node_command

    def capture_local_popen(command: list[str], env: Mapping[str, str], **_options: Any) -> Any:
        raise _NodeCommandCaptured(command[command.index("deepspeed.launcher.launch") + 1 :], env)

    runner.parse_args, runner.fetch_hostfile = parse_args, fetch_hostfile
    for name in ("PDSHRunner", "OpenMPIRunner", "MVAPICHRunner", "SlurmRunner", "MPICHRunner", "IMPIRunner"):
        if hasattr(runner, name):
            setattr(runner, name, replace_multinode_runner(name))
    runner.subprocess = SimpleNamespace(
        Popen=capture_local_popen,
        check_call=lambda *_args, **_kwargs: 0,  # checks that the first host is reachable by ssh
        check_output=lambda *_args, **_kwargs: b"127.0.0.1",  # its address
        CalledProcessError=Exception,
        DEVNULL=None,
    )
    try:
        runner.main(arguments)
    except _NodeCommandCaptured as found:
        return found
    except (ValueError, RuntimeError, AssertionError, NotImplementedError) as error:
        raise LauncherError(str(error)) from error
    raise LauncherError("it ended without starting anything")


def _format_node_command(args: Any, world_info: str) -> list[str]:
    """The arguments of the node's launcher, formatted as by PDSHRunner.get_cmd."""
    words = [f"--world_info={world_info}", f"--master_addr={args.master_addr}", f"--master_port={args.master_port}"]
    words += [f"--{flag}" for flag in ("no_python", "module", "no_local_rank") if getattr(args, flag)]
    return [*words, args.user_script, *args.user_args]


def _capture_node_processes(
    launch: Any, node_command: _NodeCommandCaptured, node: int, surroundings: LaunchMachine
) -> list[CapturedProcess]:
    """The processes that DeepSpeed's launcher would start on one node; runs its ``main`` without starting any."""
    spawns: list[CapturedProcess] = []
    local_size = len(list(node_command.world.values())[node])
    world_size = sum(len(ids) for ids in node_command.world.values())

    def capture_popen(command: list[str], env: Mapping[str, str], **_options: Any) -> Any:
        spawns.append(
            CapturedProcess(
                command=list(command),
                environment=dict(env),
                rank=int(env["RANK"]),
                local_rank=int(env["LOCAL_RANK"]),
                world_size=world_size,
                local_world_size=local_size,
                node=node,
                signals=PassedSignals("deepspeed", (), 0),  # on one node its runner has no handlers at all
            )
        )
        return _FakeProcess()

    launch.subprocess = SimpleNamespace(Popen=capture_popen)
    launch.time = SimpleNamespace(sleep=lambda _seconds: None)
    launch.signal = SimpleNamespace(signal=lambda *_args: None, SIGINT=2, SIGTERM=15)
    world = next(word for word in node_command.words if word.startswith("--world_info="))
    rest = [word for word in node_command.words if word is not world]
    if any(word.startswith("--node_rank=") for word in rest[:3]):  # --no_ssh: each node is started manually
        rest = [word for index, word in enumerate(rest) if index >= 3 or not word.startswith("--node_rank=")]
    argv = sys.argv
    sys.argv = ["launch.py", world, f"--node_rank={node}", *rest]
    try:
        launch.main()
    except (ValueError, AssertionError) as error:
        raise LauncherError(str(error)) from error
    finally:
        sys.argv = argv
    return spawns
