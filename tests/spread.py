"""Cases made at random, spread over all processors: the command line of ``make fuzz`` and ``make shell``."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


def options_of(description: str | None, *, most: int) -> argparse.ArgumentParser:
    """The options that both have; ``most``: after how many faults of its own a process stops, unless told otherwise."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--seed", type=int, default=int(time.strftime("%Y%m%d")), help="default: today, 20300131")
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--count", type=int, default=100_000)
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options.add_argument("--most", type=int, default=most, help="faults of each process after which it stops")
    return options


def spread(given: argparse.Namespace, share: Callable[[int, range, int], _T]) -> tuple[list[_T], float]:
    """What each process answers to (seed, its cases' numbers, most), and the seconds it took."""
    shares = min(given.processes, given.count)
    begin = time.monotonic()
    with ProcessPoolExecutor(shares) as pool:
        waiting = [
            pool.submit(share, given.seed, range(given.first + number, given.first + given.count, shares), given.most)
            for number in range(shares)
        ]
        return [one.result() for one in waiting], time.monotonic() - begin
