"""Programs that start a ``multiprocessing.Process`` for each rank, in a loop of their own.

Such a process looks like any other until it uses an accelerator. So the first worker starts them as they are, and
counts those of each function. If one of them used an accelerator or a process group, there is then a worker for each,
which runs up to the start of its own process and continues as that.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing.context
import multiprocessing.process
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.protocol.plan import PROCESS, WorkerPlan
from gonogo.virtual.ranks.spawned_ranks import RankProcessExited

_LIBRARIES = ("torch.", "multiprocessing.", "multiprocess.", "concurrent.", "datasets.", "joblib.")
"""Modules whose processes are workers of a loader or a pool, never ranks."""
_JOIN_SECONDS = 120.0
_OF_DEFAULT_CONTEXT = (multiprocessing.Process, multiprocessing.context.ForkProcess)


class ProcessRanks:
    """The processes that a program starts, as far as they may be its ranks."""

    def __init__(
        self, plan: WorkerPlan, used_accelerator: Callable[[], bool], record_use: Callable[[str], None]
    ) -> None:
        self._used_accelerator, self._record_use = used_accelerator, record_use
        self._target, self._local_rank = plan.process_target, plan.local_rank
        self._counts = plan.world_size == 1 and not plan.started_by_program
        self._started: Counter[str] = Counter()

    def install(self) -> Callable[[], None]:
        """Count what the program starts, or run this rank's process in its place; returns the undo."""
        patches = Patches()
        start: Any = multiprocessing.process.BaseProcess.start

        def start_process(process: Any) -> None:
            name = _function_name(process)
            number = self._started[name or ""]
            if name is not None and (self._counts or name == self._target):
                self._started[name] += 1
            if self._counts or name is None or name != self._target:
                if self._counts and name is not None and _is_forked(process):
                    process.run = functools.partial(self._run_forked, process.run, process._target)
                start(process)
            elif number == self._local_rank:  # else it is another rank's
                process.run()
                raise RankProcessExited

        if self._counts or self._target:
            patches.set(multiprocessing.process.BaseProcess, "start", start_process)
        return patches.undo

    def _run_forked(self, run: Callable[[], None], target: Any) -> None:
        """Run a process that has this one's accelerators, since it was forked, and note whether it used one."""
        try:
            run()
        finally:
            grouped = torch.distributed.is_available() and torch.distributed.is_initialized()
            if grouped or self._used_accelerator():
                code = getattr(target, "__code__", None)
                self._record_use(f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(target))

    def join(self) -> None:
        """Wait for these processes, as Python does at its exit; not for longer than two minutes."""
        end = time.monotonic() + _JOIN_SECONDS
        for process in multiprocessing.active_children() if self._started else ():
            with contextlib.suppress(AssertionError, ValueError):
                process.join(max(0.0, end - time.monotonic()))

    def several(self) -> tuple[int, str] | None:
        """How many processes ran the function that most of them ran, and the launcher's name; None if only one did."""
        most = self._started.most_common(1)
        return (most[0][1], f"{PROCESS}: {most[0][0]}") if most and most[0][1] > 1 else None


def _is_forked(process: Any) -> bool:
    return type(process) in _OF_DEFAULT_CONTEXT and multiprocessing.get_start_method() == "fork"


def _function_name(process: Any) -> str | None:
    """The function of the program's that a process runs; None for a daemon, and for a library's own."""
    target = getattr(process, "_target", None)
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if target is None or process.daemon or not isinstance(module, str) or not isinstance(name, str):
        return None
    return None if f"{module}.".startswith(_LIBRARIES) else name
