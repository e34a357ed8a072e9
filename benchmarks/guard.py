"""What the guard costs a training: seconds a step and memory, with `gonogo run` and without, in pairs.

    python benchmarks/guard.py [--pairs 5 | --turns] [--steps 40] [--models small,mid] [--ranks 1] [--device cpu|cuda]
                               [--format text|json]

The training is transformers' Trainer with DeepSpeed ZeRO-2 on a Llama made from its configuration (small: 2 layers of
256; mid: 8 layers of 512), the same data and seed each time (`benchmarks/guard_training.py`). A pair is one run without
the guard and one with it, right after each other, in alternating order. Of each run the median step counts, after ten
that do not. Printed are the median over the pairs of what the guard adds, and the worst pair: by the clock; by the
clock of the quickest tenth of the steps, and by the processors (all threads of the rank), which say more on a machine
that does other work as well. Memory is the greatest resident memory of a rank.

With --turns there are no pairs of runs, whose lengths differ by more than the guard costs wherever anything else uses
the machine. In one guarded run the guard's parts are switched off for every other step, and a step with the guard is
compared with the mean of the two beside it. Printed are the median of all, with the interval in which it lies at 95 %
(by the order of the values, without assuming how they are spread), and the worst median of a fifth of the run. What is
left of the guard when it is off, a look-up a call, is not counted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TRAINING = ROOT / "benchmarks" / "guard_training.py"
_NOT_COUNTED = 10
_PARTS = 5
_MEASURES = {"seconds": "clock", "quickest": "quickest tenth", "processor": "processors"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def trained(
    folder: Path, model: str, guarded: bool, ranks: int, steps: int, device: str, **variables: str
) -> list[dict[str, Any]]:
    """What each rank measured of one run."""
    folder.mkdir(parents=True)
    launch = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={ranks}"]
    launch += [f"--master_port={free_port()}", str(TRAINING), model, str(steps), device, str(folder)]
    if guarded:
        launch = [sys.executable, "-m", "gonogo", "run", "--no-check", "--folder", str(folder / "guard"), "--", *launch]
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", **variables}
    if device == "cpu":
        environment |= {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(launch, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(launch)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return [json.loads(path.read_text()) for path in sorted(folder.glob("measured-*.json"))]


def summed(measured: list[dict[str, Any]]) -> dict[str, float]:
    """The slowest rank's median step, and the fullest rank's memory."""
    return {
        "seconds": max(statistics.median(rank["seconds"][_NOT_COUNTED:]) for rank in measured),
        "quickest": max(statistics.quantiles(rank["seconds"][_NOT_COUNTED:], n=10)[0] for rank in measured),
        "processor": max(statistics.median(rank["processor"][_NOT_COUNTED:]) for rank in measured),
        "bytes": max(rank["bytes"] for rank in measured),
    }


def compared(folder: Path, model: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The pairs of one model, and what the guard adds by them."""
    pairs = []
    for number in range(arguments.pairs):
        pair = {}
        for guarded in (False, True) if number % 2 == 0 else (True, False):
            place = folder / f"{model}-{number}-{guarded}"
            measured = trained(place, model, guarded, arguments.ranks, arguments.steps, arguments.device)
            pair["on" if guarded else "off"] = summed(measured)
            shutil.rmtree(place)
        pairs.append(pair)
        print(f"{model}: pair {number + 1} of {arguments.pairs}", file=sys.stderr)
    added = {what: [100 * (pair["on"][what] / pair["off"][what] - 1) for pair in pairs] for what in _MEASURES}
    return {
        "model": model,
        "step_seconds": statistics.median(pair["off"]["seconds"] for pair in pairs),
        "added_percent": {
            what: {"median": statistics.median(all_), "worst": max(all_)} for what, all_ in added.items()
        },
        "added_bytes": statistics.median(pair["on"]["bytes"] - pair["off"]["bytes"] for pair in pairs),
        "pairs": pairs,
    }


def in_turns(folder: Path, model: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the guard adds to a step, against the two beside it, of one guarded run."""
    [measured] = trained(folder / model, model, True, 1, arguments.steps, arguments.device, TURNS="1")
    added = {}
    for what in ("seconds", "processor"):
        # The guard is on in steps 1, 3, 5 ... as they stand here.
        steps = measured[what]
        ratios = [
            100 * (2 * steps[at] / (steps[at - 1] + steps[at + 1]) - 1)
            for at in range(_NOT_COUNTED + 1, len(steps) - 1, 2)
        ]
        part = len(ratios) // _PARTS
        added[what] = {
            "median": statistics.median(ratios),
            "interval": interval(ratios),
            "worst": max(statistics.median(ratios[at * part : (at + 1) * part]) for at in range(_PARTS)),
        }
    return {
        "model": model,
        "turns": len(ratios),
        "step_seconds": statistics.median(measured["seconds"][_NOT_COUNTED::2]),
        "added_percent": added,
    }


def interval(values: list[float]) -> list[float]:
    """Between which two of the values the median of all such lies, at 95 %: Conover, Practical Nonparametric
    Statistics, 1999, section 3.2.
    """
    ordered, half = sorted(values), 0.98 * math.sqrt(len(values))
    low, high = math.floor(len(values) / 2 - half), math.ceil(len(values) / 2 + half)
    return [ordered[max(low, 0)], ordered[min(high, len(values) - 1)]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--models", default="small,mid")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gonogo-guard-") as folder:
        measure = in_turns if arguments.turns else compared
        rows = [measure(Path(folder), model, arguments) for model in arguments.models.split(",")]
    if arguments.format == "json":
        machine = {"python": platform.python_version(), "processors": os.cpu_count(), "device": arguments.device}
        print(json.dumps({"machine": machine, "ranks": arguments.ranks, "steps": arguments.steps, "models": rows}))
        return
    if arguments.turns:
        for row in rows:
            told = [
                f"{_MEASURES[what]} {one['median']:+.2f} % ({one['interval'][0]:+.2f} to {one['interval'][1]:+.2f},"
                f" worst fifth {one['worst']:+.2f})"
                for what, one in row["added_percent"].items()
            ]
            print(f"{row['model']}: {row['turns']} steps of {row['step_seconds']:.2f} s; {', '.join(told)}")
        return
    print(f"{'model':8}{'step':>10}" + "".join(f"{name:>24}" for name in _MEASURES.values()) + f"{'memory':>14}")
    for row in rows:
        added = [row["added_percent"][what] for what in _MEASURES]
        told = "".join(f"{one['median']:+12.2f} % ({one['worst']:+.2f})".rjust(24) for one in added)
        print(f"{row['model']:8}{row['step_seconds']:8.3f} s{told}{row['added_bytes'] / (1 << 20):+10.1f} MiB")


if __name__ == "__main__":
    main()
