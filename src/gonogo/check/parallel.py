"""A function of many items on all processors, where there are so many that it is worth the start of processes."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_Result = TypeVar("_Result")

_MIN_PARALLEL_COUNT = 64
"""Fewer items than this are done sooner than processes are started for them."""
_CHUNKS_PER_WORKER = 4
"""Parts of the work for each processor, so that none waits long for the last."""

_work: Callable[[int], Any] | None = None
"""What the forked processes were started to answer."""


def processors() -> int:
    """How many processors this process may use, where its memory can be shared by forking; else one."""
    if sys.platform != "linux":  # elsewhere a fork of a process with threads or frameworks loaded is not safe
        return 1
    return len(os.sched_getaffinity(0))


def parallel_map(function: Callable[[int], _Result], count: int, on_progress: Callable[[int], None]) -> list[_Result]:
    """``[work(0), …, work(count - 1)]``; ``on_progress`` hears how many are done.

    What ``function`` changes in memory may be lost: it must return all that matters, as something that can be pickled.
    """
    if count < _MIN_PARALLEL_COUNT or processors() < 2:
        found = []
        for number in range(count):
            found.append(function(number))
            on_progress(number + 1)
        return found
    global _work
    _work = function
    try:
        return _run_forked(count, on_progress)
    finally:
        _work = None


def _run_forked(count: int, on_progress: Callable[[int], None]) -> list[Any]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    workers = processors()
    parts = [range(first, count, workers * _CHUNKS_PER_WORKER) for first in range(workers * _CHUNKS_PER_WORKER)]
    found: list[Any] = [None] * count
    done = 0
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"))
    try:
        with warnings.catch_warnings():  # Python 3.12 warns of a fork beside a progress bar's thread, which is not used
            warnings.simplefilter("ignore", DeprecationWarning)
            waiting = {pool.submit(_run_chunk, part): part for part in parts}
        for future in as_completed(waiting):
            for number, answer in zip(waiting[future], future.result(), strict=True):
                found[number] = answer
            done += len(waiting[future])
            on_progress(done)
    finally:
        pool.shutdown(cancel_futures=True)
    return found


def _run_chunk(indices: Sequence[int]) -> list[Any]:
    assert _work is not None
    return [_work(number) for number in indices]
