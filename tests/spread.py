"""Cases made at random, spread over all processors: the command line of ``make fuzz`` and ``make shell``."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


def spread(
    description: str | None, share: Callable[[int, range, int], _T], *, most: int
) -> tuple[argparse.Namespace, list[_T], float]:
    """The options as given, what each process answers to (seed, its cases' numbers, most), and the seconds it took.

    ``most``: after how many faults of its own a process stops, unless ``--most`` says otherwise.
    """
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--seed", type=int, default=int(time.strftime("%Y%m%d")), help="default: today, 20300131")
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--count", type=int, default=100_000)
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options.add_argument("--most", type=int, default=most, help="faults of each process after which it stops")
    given = options.parse_args()
    shares = min(given.processes, given.count)
    begin = time.monotonic()
    with ProcessPoolExecutor(shares) as pool:
        waiting = [
            pool.submit(share, given.seed, range(given.first + number, given.first + given.count, shares), given.most)
            for number in range(shares)
        ]
        return given, [one.result() for one in waiting], time.monotonic() - begin
