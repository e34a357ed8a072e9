"""Map a function over many items on all processors, if there are enough items to make up for starting processes."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_Result = TypeVar("_Result")

_MIN_PARALLEL_COUNT = 64
"""Fewer items than this are processed faster in this process."""
_CHUNKS_PER_WORKER = 4
"""Chunks of work for each processor, so that all of them finish at about the same time."""

_work: Callable[[int], Any] | None = None
"""The function that the forked workers call."""


def usable_processor_count() -> int:
    """The number of processors that this process may use; 1 where it can't safely fork."""
    if sys.platform != "linux":  # on other systems, forking a process with threads or loaded frameworks is not safe
        return 1
    return len(os.sched_getaffinity(0))


def parallel_map(function: Callable[[int], _Result], count: int, on_progress: Callable[[int], None]) -> list[_Result]:
    """``[function(0), …, function(count - 1)]``; ``on_progress`` is called with the number of items done.

    ``function`` may run in a forked process, so its changes to memory are lost: its result must be complete and
    picklable.
    """
    if count < _MIN_PARALLEL_COUNT or usable_processor_count() < 2:
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

    workers = usable_processor_count()
    parts = [range(first, count, workers * _CHUNKS_PER_WORKER) for first in range(workers * _CHUNKS_PER_WORKER)]
    found: list[Any] = [None] * count
    done = 0
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"))
    try:
        with warnings.catch_warnings():  # Python 3.12 warns of forking beside a progress bar's thread; unused here
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
