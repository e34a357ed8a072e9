"""Many cases of the fuzzer, on all processors: ``make fuzz``. Exit status 1 where one is answered wrongly."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.trial import faults


def _share(seed: int, first: int, count: int, share: int, shares: int, most: int) -> list[str]:
    os.environ.pop("GONOGO_DEBUG", None)
    with tempfile.TemporaryDirectory() as folder:
        cases = range(first + share, first + count, shares)
        return [str(fault) for fault in faults(seed, cases, Path(folder, "case"), most)]


def main() -> int:
    """Run them, and print what is wrong."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=int(time.strftime("%Y%m%d")), help="default: today, 20300131")
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--count", type=int, default=100_000)
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options.add_argument("--most", type=int, default=20, help="faults of each process after which it stops")
    given = options.parse_args()
    shares = min(given.processes, given.count)
    begin = time.monotonic()
    with ProcessPoolExecutor(shares) as pool:
        waiting = [
            pool.submit(_share, given.seed, given.first, given.count, share, shares, given.most)
            for share in range(shares)
        ]
        found = [fault for one in waiting for fault in one.result()]
    for fault in found:
        print(fault, end="\n\n")
    print(f"seed {given.seed}: {given.count:,} cases, {len(found)} faults, {time.monotonic() - begin:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
