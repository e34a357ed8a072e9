"""Many shell scripts, read by gonogo and run by bash, on all processors: ``make shell``.

Exit status 1 where one differs.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from shell.bash import Bash
from shell.scripts import Maker


def script_of(seed: int, number: int) -> dict[str, str]:
    """The files of one script."""
    chance = random.Random(f"{seed} {number}")
    return Maker(lambda options: options[chance.randrange(len(options))]).script()


def _share(seed: int, first: int, count: int, share: int, shares: int, most: int) -> tuple[list[str], int, int]:
    found: list[str] = []
    with Bash() as bash:
        for number in range(first + share, first + count, shares):
            files = script_of(seed, number)
            differences = bash.differences(files)
            if differences:
                texts = [f"--- {name}\n{text}" for name, text in files.items()]
                found.append("\n".join([f"=== {number}", *texts, *differences]))
                if len(found) >= most:
                    break
        return found, bash.settled, bash.unknown.total()


def main() -> int:
    """Run them, and print where they differ."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=int(time.strftime("%Y%m%d")), help="default: today, 20300131")
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--count", type=int, default=100_000)
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options.add_argument("--most", type=int, default=10, help="differences of each process after which it stops")
    given = options.parse_args()
    shares = min(given.processes, given.count)
    begin = time.monotonic()
    with ProcessPoolExecutor(shares) as pool:
        waiting = [
            pool.submit(_share, given.seed, given.first, given.count, share, shares, given.most)
            for share in range(shares)
        ]
        results = [one.result() for one in waiting]
    found = [each for differing, _, _ in results for each in differing]
    print(*found, sep="\n\n", end="\n\n" if found else "")
    settled, unknown = sum(each[1] for each in results), sum(each[2] for each in results)
    print(
        f"seed {given.seed}: {given.count:,} scripts, {len(found)} differ; of the programs that they start {settled:,} "
        f"are read whole and {unknown:,} said to be unknown; {time.monotonic() - begin:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
