"""Programs of asynchronous reinforcement learning that wait for each other forever, and twins that don't, rehearsed.

    python benchmarks/waits.py [--worlds 2] [--programs NAME…]
    python benchmarks/waits.py --worlds 1-8 --programs samples_of_one_rank_only

Prints a row for each program of ``tests/waits`` and world size: what really happens (``tests/waits/truth.py``), the
verdict, the hazard, and how many of the lines in which the sides wait are named. *right*: GO where nothing hangs;
where it does, NO-GO (CANNOT-TELL where the program's own text can't settle it) with all of the lines. *wrong*: GO
where it hangs, or NO-GO where it doesn't. *unsure*: anything else.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

WAITS = Path(__file__).parent.parent / "tests" / "waits"
EXPECTED: dict[str, dict[str, Any]] = json.loads((WAITS / "expected.json").read_text())


def rehearsed(name: str, world: int, seconds: int) -> dict[str, Any]:
    """The report of ``gonogo rehearse`` on the program in a world of this size."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, name)
        shutil.copytree(WAITS / name, folder)
        is_ray = "import ray" in (folder / "train.py").read_text()
        start = ["python"] if is_ray else ["torchrun", "--nproc_per_node", str(world)]
        words = [
            sys.executable, "-m", "gonogo", "rehearse", "--gpus", f"{world}xA100-80G", "--ranks", "all",
            "--environment", "none", "--timeout", str(seconds), "--format", "json", "--", *start, "train.py",
        ]  # fmt: skip
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.stdout else {"verdict": "none", "findings": [], "error": done.stderr[-500:]}


def judged(name: str, world: int, report: dict[str, Any]) -> tuple[str, str, str]:
    """How right the report is, its hazard, and how many of the waiting sides' lines it names."""
    stated = EXPECTED[name]
    errors = [one for one in report["findings"] if one["severity"] == "error"]
    hazard = errors[0]["hazard"] if errors else ""
    hangs = world in stated["hangs_in"]
    verdict = report["verdict"]
    if not hangs:
        return ("right" if verdict == "GO" else "wrong" if verdict == "NO-GO" else "unsure"), hazard, ""
    lines = (WAITS / name / "train.py").read_text().splitlines()
    named = {lines[span["line"] - 1].strip() for one in errors for span in one["spans"] if span["path"] == "train.py"}
    count = sum(side in named for side in stated["sides"])
    sides = f"{count}/{len(stated['sides'])}"
    wanted = "NO-GO" if stated["certain"] else "CANNOT-TELL"
    if verdict == wanted and count == len(stated["sides"]):
        return "right", hazard, sides
    return ("wrong" if verdict == "GO" or (verdict == "NO-GO" and not stated["certain"]) else "unsure"), hazard, sides


def sizes(text: str) -> list[int]:
    """``2`` or ``1-8`` or ``1,2,4``."""
    first, dash, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else [int(one) for one in text.split(",")]


def main() -> None:
    """Rehearse the programs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="2", help="1-8, 2,4 …; a Ray program's world is 1")
    parser.add_argument("--programs", nargs="*", default=[])
    parser.add_argument("--timeout", type=int, default=60)
    given = parser.parse_args()
    counted: Counter[str] = Counter()
    print("| program | world | really | verdict | hazard | lines | judged | s |")
    print("| --- " * 8 + "|")
    for name, stated in EXPECTED.items():
        if given.programs and name not in given.programs:
            continue
        for world in [1] if stated["runs_in"] == [1] else sizes(given.worlds):
            if world not in stated["runs_in"]:
                continue
            started = time.monotonic()
            report = rehearsed(name, world, given.timeout)
            right, hazard, sides = judged(name, world, report)
            counted[right] += 1
            really = "hangs" if world in stated["hangs_in"] else "runs"
            row = (name, world, really, report["verdict"], hazard, sides, right, f"{time.monotonic() - started:.0f}")
            print(f"| {' | '.join(map(str, row))} |", flush=True)
    print(dict(counted))
    sys.exit(bool(counted["wrong"]))


if __name__ == "__main__":
    main()
