"""How many of N healthy programs in a world that lacks something would be told as a certain NO-GO: none may be.

    python benchmarks/mutated_worlds.py [--worlds 500] [--seed 7] [--rehearse]

The programs are those of ``tests/rehearse/lacking_worlds.py``. ``--rehearse`` also runs the cases of
``tests/rehearse/certainty_cases.py`` whole, by ``gonogo rehearse``, and compares their verdicts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "rehearse"))

from certainty_cases import CASES
from lacking_worlds import all_worlds, by_words_alone, healthy, is_certain, mutated


def in_this_process(count: int, seed: int) -> bool:
    """Run so many worlds here, in the seed's order; returns whether none was certain."""
    told: Counter[str] = Counter()
    started = time.monotonic()
    for world in all_worlds(seed)[:count]:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder).resolve()
            (place / "whole").mkdir()
            world.write(place / "whole")
            if (error := healthy(world, place / "whole")) is not None:
                told["not healthy"] += 1
                print(f"not healthy: {world.name}: {error!r}")
                continue
            (place / "lacking").mkdir()
            world.write(place / "lacking")
            rank = mutated(world, place / "lacking")
            if rank is None:
                told["does without"] += 1
            elif is_certain(rank):
                told["certain NO-GO"] += 1
                assert rank.failure is not None
                print(f"certain: {world.name}: {rank.failure.type}: {rank.failure.message[:80]}", flush=True)
            else:
                told["CANNOT-TELL"] += 1
            told["certain by its words alone"] += rank is not None and by_words_alone(place / "lacking")
    by_words = told.pop("certain by its words alone")
    print(f"{by_words} of the failures would be certain by their words alone")
    print(f"{sum(told.values())} worlds, {time.monotonic() - started:.0f} s: {dict(told)}")
    return not told["certain NO-GO"] and not told["not healthy"]


def rehearsed() -> bool:
    """Rehearse the cases; returns whether no verdict is wrong."""
    told: Counter[str] = Counter()
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, "-m", "gonogo", "rehearse", "--format", "json", *case.write(Path(folder))]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        try:
            verdict = json.loads(done.stdout)["verdict"]
        except ValueError:
            verdict = f"status {done.returncode}"
        right = verdict == case.verdict
        told["right" if right else "unsure" if verdict == "CANNOT-TELL" else "wrong"] += 1
        print(f"{case.kind:9} {case.name:32} {verdict:12} {'' if right else f'is {case.verdict}'}", flush=True)
    print(f"{len(CASES)} cases: {dict(told)}")
    return not told["wrong"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    fine = in_this_process(options.worlds, options.seed)
    if options.rehearse:
        fine = rehearsed() and fine
    sys.exit(0 if fine else 1)
