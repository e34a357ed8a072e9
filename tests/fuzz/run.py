"""Many cases of the fuzzer, on all processors: ``make fuzz``. Exit status 1 where one is answered wrongly."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from spread import options_of, spread

from fuzz.cases import Fuzzer
from fuzz.trial import faults


def _share(seed: int, cases: range, most: int, *, grow: bool) -> list[str]:
    os.environ.pop("GONOGO_DEBUG", None)
    with tempfile.TemporaryDirectory() as folder:
        return [str(fault) for fault in faults(seed, cases, Path(folder, "case"), most, grow=grow)]


def main() -> int:
    """Run them, and print what is wrong."""
    options = options_of(__doc__, most=20)
    options.add_argument("--grow", action="store_true", help="each sample file once, made large out of its own text")
    given = options.parse_args()
    if given.grow:
        given.count = min(given.count, len(Fuzzer(given.seed).files_to_grow))
    shares, seconds = spread(given, partial(_share, grow=given.grow))
    found = [fault for share in shares for fault in share]
    for fault in found:
        print(fault, end="\n\n")
    print(f"seed {given.seed}: {given.count:,} cases, {len(found)} faults, {seconds:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
