"""Many cases of the fuzzer, on all processors: ``make fuzz``. Exit status 1 where one is answered wrongly."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from spread import spread

from fuzz.trial import faults


def _share(seed: int, cases: range, most: int) -> list[str]:
    os.environ.pop("GONOGO_DEBUG", None)
    with tempfile.TemporaryDirectory() as folder:
        return [str(fault) for fault in faults(seed, cases, Path(folder, "case"), most)]


def main() -> int:
    """Run them, and print what is wrong."""
    given, shares, seconds = spread(__doc__, _share, most=20)
    found = [fault for share in shares for fault in share]
    for fault in found:
        print(fault, end="\n\n")
    print(f"seed {given.seed}: {given.count:,} cases, {len(found)} faults, {seconds:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
