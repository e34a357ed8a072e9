"""``torchrun`` and ``python -m torch.distributed.run``: torch's own launcher."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from gonogo.evidence.launch.launchers.torchrun import TORCH_DISTRIBUTED_LAUNCH, TORCHRUN
from gonogo.rehearse.launch.launch import LaunchMachine, PassedSignals
from gonogo.rehearse.launch.launchers import Launcher, LauncherError, StartedProgram
from gonogo.rehearse.launch.launchers.captured_processes import CapturedProcess, to_started_program
from gonogo.rehearse.launch.torch_devices import with_virtual_devices

_SIGNALS_VARIABLE = "TORCHELASTIC_SIGNALS_TO_HANDLE"
_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
_SHUTDOWN_SECONDS = 30
"""What a torch without ``--shutdown-timeout`` takes."""


class Torchrun(Launcher):
    """torch's elastic launcher."""

    described = TORCHRUN

    def start(self, arguments: list[str], surroundings: LaunchMachine) -> StartedProgram:
        """Everything that torchrun would start with those arguments."""
        run = importlib.import_module("torch.distributed.run")
        base = dict(os.environ)
        with with_virtual_devices(surroundings):
            return torchrun_processes(run.parse_args(arguments), base, surroundings)


class TorchDistributedLaunch(Launcher):
    """torchrun's predecessor, which passes ``--local-rank`` to the program."""

    described = TORCH_DISTRIBUTED_LAUNCH

    def start(self, arguments: list[str], surroundings: LaunchMachine) -> StartedProgram:
        """The processes that it would start with those arguments."""
        launch: Any = importlib.import_module("torch.distributed.launch")
        base = dict(os.environ)
        run_arguments: list[Any] = []
        launch.run = run_arguments.append
        with with_virtual_devices(surroundings):
            launch.launch(launch.parse_args(arguments))
            return torchrun_processes(run_arguments[0], base, surroundings)


def torchrun_processes(
    run_arguments: Any, base: Mapping[str, str], surroundings: LaunchMachine, notes: tuple[tuple[str, str], ...] = ()
) -> StartedProgram:
    """The processes of torchrun for parsed arguments; they inherit the current ``os.environ``."""
    run = importlib.import_module("torch.distributed.run")
    macros = importlib.import_module("torch.distributed.elastic.utils").macros
    # Otherwise it would create log folders of the user already here.
    run_arguments.log_dir, run_arguments.redirects, run_arguments.tee = None, "0", "0"
    own_rendezvous = run_arguments.standalone or (
        run_arguments.rdzv_backend == "static"
        and not run_arguments.rdzv_endpoint
        and run_arguments.master_port is None
        and run.parse_min_max_nnodes(run_arguments.nnodes)[1] == 1
    )
    if run_arguments.master_port is None:
        run_arguments.master_port = 29500
    config, entrypoint, program_arguments = run.config_from_args(run_arguments)
    if not isinstance(entrypoint, str):  # --run-path: torchrun runs the script in its own process
        entrypoint, program_arguments = "python", ["-u", *program_arguments]
    nodes = _node_count(config.min_nodes, config.max_nodes, surroundings.nodes)
    per_node = int(config.nproc_per_node)
    if per_node < 1:
        raise LauncherError(f"--nproc_per_node={run_arguments.nproc_per_node} starts no process")
    virtual_local_rank = bool(getattr(config, "virtual_local_rank", False))
    inherited = dict(os.environ)
    visible = inherited.get(surroundings.visible_devices_variable)
    devices = visible.split(",") if visible else [str(index) for index in range(per_node)]
    address, port = ("localhost", "29500") if own_rendezvous else _master_address_and_port(run_arguments)
    signals = _passed_signals(config)
    spawns = []
    for rank in range(nodes * per_node):
        node, local_rank = divmod(rank, per_node)
        own = {
            **_rank_variables(config, rank, node, local_rank, nodes, per_node),
            "MASTER_ADDR": address,
            "MASTER_PORT": port,
        }
        if virtual_local_rank:
            own["LOCAL_RANK"] = "0"
            own[surroundings.visible_devices_variable] = devices[local_rank] if local_rank < len(devices) else ""
        spawns.append(
            CapturedProcess(
                command=[entrypoint, *macros.substitute(program_arguments, str(local_rank))],
                environment={**inherited, **own},
                rank=rank,
                local_rank=0 if virtual_local_rank else local_rank,
                world_size=nodes * per_node,
                local_world_size=per_node,
                node=node,
                signals=signals,
            )
        )
    return to_started_program(spawns, base, nodes, notes)


def _passed_signals(config: Any) -> PassedSignals:
    """The signals for which torchrun has handlers, which end its processes with the same signal, and then by force.

    Its processes have sessions of their own: another signal reaches none of them. (PContext.start, _close)
    """
    names = str(getattr(config, "signals_to_handle", None) or os.environ.get(_SIGNALS_VARIABLE) or _SIGNALS)
    seconds = getattr(config, "shutdown_timeout", None)
    return PassedSignals(
        "torchrun",
        tuple(name.strip() for name in names.split(",")),
        _SHUTDOWN_SECONDS if seconds is None else int(seconds),
    )


def _node_count(min_nodes: int, max_nodes: int, requested_nodes: int | None) -> int:
    """The number of nodes for ``--nnodes MIN:MAX``: the requested one if it is in the range, else the maximum."""
    if requested_nodes is not None and min_nodes <= requested_nodes <= max_nodes:
        return requested_nodes
    return max_nodes


def _master_address_and_port(run_arguments: Any) -> tuple[str, str]:
    """Address and port of rank 0. Unless the rendezvous is static, torchrun picks a free port, unknown here."""
    endpoint = str(run_arguments.rdzv_endpoint or "")
    if not endpoint:
        return str(run_arguments.master_addr or "127.0.0.1"), str(run_arguments.master_port)
    host, _, port = endpoint.rpartition(":")
    if run_arguments.rdzv_backend == "static" and host:
        return host, port
    return host or endpoint, str(run_arguments.master_port)


def _rank_variables(config: Any, rank: int, node: int, local_rank: int, nodes: int, per_node: int) -> dict[str, str]:
    """The variables that torch's LocalElasticAgent._start_workers sets for each process (2.6 to 2.13)."""
    world = nodes * per_node
    signals = getattr(config, "signals_to_handle", None)
    return {
        **({_SIGNALS_VARIABLE: str(signals)} if signals else {}),
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "GROUP_RANK": str(node),
        "ROLE_RANK": str(rank),
        "ROLE_NAME": str(config.role or "default"),
        "LOCAL_WORLD_SIZE": str(per_node),
        "WORLD_SIZE": str(world),
        "GROUP_WORLD_SIZE": str(nodes),
        "ROLE_WORLD_SIZE": str(world),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
        "TORCHELASTIC_RUN_ID": str(config.run_id or "none"),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
