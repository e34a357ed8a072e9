"""What the confinement adds to the start of a program: a world made, the program started in it, the world ended.

    python benchmarks/confinement.py [--pairs 40] [--means namespaces] [--format text|json]

A pair is ``true`` started as it is and ``true`` in a new world, right after each other, in alternating order, in a
folder of a project. Printed are, of what the world adds, the least and the median by the clock (other work on the
machine counts in the median), the median by the processors, and of it what each further program in a world costs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gonogo.confinement.confinement import CONFINEMENT_VARIABLE, Confinement
from gonogo.finding import UserError

_PROGRAM = ["/bin/true"]
Seconds = tuple[float, float]
"""By the clock, and by the processors."""


def timed(work: Callable[[], object]) -> Seconds:
    """What some work takes, its children's work included."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    began = time.perf_counter()
    work()
    clock = time.perf_counter() - began
    now = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    pairs = zip(now, used, strict=True)
    return clock, sum(one.ru_utime + one.ru_stime - old.ru_utime - old.ru_stime for one, old in pairs)


def in_new_world(confinement: Confinement, programs: int = 1) -> None:
    """Make a world, start programs in it one by one, end it."""
    with confinement.world() as world:
        for _ in range(programs):
            environment = world.environment({"PATH": os.defpath})
            subprocess.run(world.command(_PROGRAM), env=environment, stdin=subprocess.DEVNULL, check=True)


def measured(pairs: int) -> dict[str, float | str]:
    """The figures, in seconds."""
    added, further = [], []
    with tempfile.TemporaryDirectory(prefix="gonogo-", ignore_cleanup_errors=True) as folder:
        confinement = Confinement(Path(folder).resolve())
        in_new_world(confinement)  # the first looks for a means, too
        for number in range(pairs):
            ways = {
                "plain": lambda: subprocess.run(_PROGRAM, stdin=subprocess.DEVNULL, check=True),
                "world": lambda: in_new_world(confinement),
                "two": lambda: in_new_world(confinement, 2),
            }
            order = list(ways) if number % 2 else list(reversed(ways))
            times = {name: timed(ways[name]) for name in order}
            added.append(tuple(times["world"][part] - times["plain"][part] for part in (0, 1)))
            further.append(times["two"][0] - times["world"][0])
        return {
            "means": str(confinement.means),
            "least": min(clock for clock, _ in added),
            "median": statistics.median(clock for clock, _ in added),
            "median by the processors": statistics.median(used for _, used in added),
            "median of each further program": statistics.median(further),
        }


def main() -> int:
    """Measure and print; 2 where this machine doesn't have the means."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--means", choices=("namespaces", "landlock"), default="")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    if options.means:
        os.environ[CONFINEMENT_VARIABLE] = options.means
    try:
        figures = measured(options.pairs)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    if options.format == "json":
        print(json.dumps(figures))
        return 0
    for name, value in figures.items():
        print(f"{name}: {value}" if isinstance(value, str) else f"{name}: {value:.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
