"""Rehearses the processes that a program spawns itself as ranks, each in its own worker.

Programs do so with ``torch.multiprocessing.spawn``, or with torchrun's ``elastic_launch`` and a function, as in
accelerate's ``notebook_launcher``. The number of processes is only known at that call. So the first worker ends there
and reports it; then one worker per rank is started, which runs up to the same call and continues as that rank.

Lightning (``devices=4`` without a launcher) starts the same command again for each further rank, with variables by
which that rank knows that it was started so. Its ranks' workers have them from the start; rank 0 is the program itself.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing

from gonogo.evidence.rehearsal.record import UnsupportedPart
from gonogo.finding import translated
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.protocol.plan import LIGHTNING, SPAWN, WorkerPlan, lightning_variables
from gonogo.virtual.unsupported import UnsupportedOperator

_OF_LIGHTNING = tuple(
    f"{package}.strategies.launchers.subprocess_script"
    for package in ("lightning.fabric", "lightning.pytorch", "lightning_fabric", "pytorch_lightning")
)
_NOT_REHEARSED = translated("the processes that the program starts were not rehearsed")
_ACCELERATOR_REQUESTED = translated("this process requests an accelerator, which only the rehearsed processes have")


class ProcessLaunchRequested(BaseException):
    """Raised at the point where the program would start ``count`` processes with ``starter``."""

    def __init__(self, count: int, starter: str = SPAWN) -> None:
        super().__init__(count)
        self.count, self.starter = count, starter


class RankProcessExited(BaseException):
    """Raised when the function of a spawned rank returns, where its process would end."""


def spawn_not_rehearsed(starter: str, place: str) -> UnsupportedPart:
    """The program starts its ranks, and they were not rehearsed."""
    return UnsupportedPart(starter, place, _NOT_REHEARSED.en, _NOT_REHEARSED.zh)


def accelerator_in_subprocess(place: str) -> UnsupportedPart:
    """A process that the program starts in addition to its ranks uses an accelerator."""
    return UnsupportedPart(
        "a process that the program starts", place, _ACCELERATOR_REQUESTED.en, _ACCELERATOR_REQUESTED.zh
    )


def install(plan: WorkerPlan) -> Callable[[], None]:
    """Replace the functions that start processes; returns the undo."""
    patches = Patches()
    module: Any = sys.modules[SPAWN]  # the module, since torch.multiprocessing exports a function of the same name

    def start_processes(
        fn: Any,
        args: tuple[Any, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str = "spawn",
        **_options: Any,
    ) -> None:
        _continue_as_rank(plan, nprocs, start_method, (fn, args))
        fn(plan.local_rank, *args)
        raise RankProcessExited

    for owner in (module, torch.multiprocessing):
        patches.set(owner, "start_processes", start_processes)
    patches.on_undo(after_import("torch.distributed.launcher.api", lambda api: _replace_agent(patches, api, plan)))
    for name in _OF_LIGHTNING:
        patches.on_undo(after_import(name, lambda launcher: _replace_child_scripts(patches, launcher, plan)))
    return patches.undo


def _continue_as_rank(plan: WorkerPlan, count: int, start_method: str, process_arguments: Any) -> None:
    """Return if this worker is one of the spawned ranks; otherwise end the program with the number of processes."""
    if start_method != "fork":
        _Sent().dump(process_arguments)
    if not plan.started_by_program:
        raise ProcessLaunchRequested(count)


def _replace_agent(patches: Patches, api: Any, plan: WorkerPlan) -> None:
    """Patch ``elastic_launch`` with a function; called with a command line it is torchrun, not the user's program."""
    original = api.launch_agent

    def launch_agent(config: Any, entrypoint: Any, args: list[Any], *rest: Any, **options: Any) -> Any:
        if not callable(entrypoint):
            return original(config, entrypoint, args, *rest, **options)
        if config.max_nodes > 1:
            raise UnsupportedOperator(
                "elastic_launch",
                translated("the nodes that the program would connect to are not here: start it with torchrun"),
            )
        _continue_as_rank(plan, config.nproc_per_node, config.start_method, (entrypoint, args))
        os.environ.update(_rank_variables(plan))
        entrypoint(*args)
        raise RankProcessExited

    patches.set(api, "launch_agent", launch_agent)


def _replace_child_scripts(patches: Patches, module: Any, plan: WorkerPlan) -> None:
    """Patch what starts the command again for each further rank of the node."""
    launcher = module._SubprocessScriptLauncher
    original = launcher._call_children_scripts

    def call_children_scripts(self: Any) -> None:
        if self.num_nodes > 1 or self.num_processes < 2:
            original(self)
        elif not plan.started_by_program:
            raise ProcessLaunchRequested(self.num_processes, LIGHTNING)
        else:
            os.environ.update(lightning_variables(plan.local_rank, plan.world_size))

    patches.set(launcher, "_call_children_scripts", call_children_scripts)


def _rank_variables(plan: WorkerPlan) -> dict[str, str]:
    """The variables that torchrun's agent sets for a single-node process (torch/distributed/elastic/agent/server)."""
    rank, world = str(plan.rank), str(plan.world_size)
    return {
        "LOCAL_RANK": rank,
        "RANK": rank,
        "GROUP_RANK": "0",
        "ROLE_RANK": rank,
        "LOCAL_WORLD_SIZE": world,
        "WORLD_SIZE": world,
        "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": os.environ.get("MASTER_ADDR", "localhost"),
        "MASTER_PORT": os.environ.get("MASTER_PORT", "29500"),
    }


class _Sent(ForkingPickler):
    """Pickles a function and its arguments to raise the same errors as spawning would; tensors always succeed."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())

    def reducer_override(self, value: Any) -> Any:
        """Skip the contents of tensors."""
        if isinstance(value, torch.Tensor | torch.UntypedStorage | torch.TypedStorage):
            return str, ()
        return NotImplemented
