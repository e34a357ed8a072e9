"""Threads that a Ray process starts itself: their requests to their process are served in its turn.

They run without a turn, while any process may have its turn. A collective of theirs
(``asyncio.to_thread(dist.barrier)``) takes the turn of the process that they belong to and returns it afterwards; so
does each step of an event loop in such a thread (TransferQueue's client), which then sees its process's variables.
Between steps the loop waits without a turn.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from types import FunctionType
from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.ray.turns import TurnScheduler

_PROCESS_ATTRIBUTE = "gonogo_process"


def install(patches: Patches, turn_scheduler: TurnScheduler) -> None:
    """Make threads remember their process, and torch.distributed's functions use it."""
    start_ = threading.Thread.start

    def owning_process() -> Any:
        return turn_scheduler.current_process or getattr(threading.current_thread(), _PROCESS_ATTRIBUTE, None)

    def start(self: Any) -> None:
        setattr(self, _PROCESS_ATTRIBUTE, owning_process())
        start_(self)

    patches.set(threading.Thread, "start", start)
    run = asyncio.Handle._run

    def run_in_own_process(self: Any) -> None:
        process = owning_process() if turn_scheduler.current_process is None else None
        if process is None:
            run(self)
            return
        turn_scheduler.join(process, is_progress=False)  # periodic wake-ups would look like progress
        try:
            run(self)
        finally:
            turn_scheduler.leave()

    patches.set(asyncio.Handle, "_run", run_in_own_process)

    def wrap_for_creating_process(function: Any) -> Any:
        @functools.wraps(function)
        def call_in_process(*args: Any, **kwargs: Any) -> Any:
            process = owning_process() if turn_scheduler.current_process is None else None
            if process is None:
                return function(*args, **kwargs)
            turn_scheduler.join(process)
            try:
                return function(*args, **kwargs)
            finally:
                turn_scheduler.leave()

        return call_in_process

    for name in c10d.__all__:
        function = getattr(c10d, name, None)
        if isinstance(function, FunctionType):
            replaced = wrap_for_creating_process(function)
            for module in (c10d, dist):
                if getattr(module, name, None) is function:
                    patches.set(module, name, replaced)
