"""How fast `gonogo check` is: its start, one run's files, and a folder of a thousand files.

    python benchmarks/check.py [--format json] [--files 1000] [--runs 5]

`start` is `gonogo --version`. `one run` is `gonogo check -- bash launch.sh` in each of `examples/`, which follows the
script to its configs, scripts and versions. `folder` is a folder of copies of the examples' files (launch scripts,
DeepSpeed and accelerate configs, scripts, requirements; each copy differs in a line, so that nothing read for one
serves for another), checked at once. Each is measured from start to exit; printed are the least and the median.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
GONOGO = [sys.executable, "-m", "gonogo"]
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if (path / "launch.sh").is_file())
CHECKED = (".sh", ".json", ".yaml", ".py", ".txt")


def seconds_of(command: list[str], folder: Path, runs: int) -> list[float]:
    """Seconds from start to exit, of each of several runs after one that is not counted."""
    measured = []
    for _ in range(runs + 1):
        started = time.perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        measured.append(time.perf_counter() - started)
        if done.returncode not in (0, 1, 3):
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return measured[1:]


def fill(folder: Path, count: int) -> int:
    """Copy the examples' files into the folder until there are that many; answers how many there are."""
    written = 0
    number = 0
    while written < count:
        example = EXAMPLES[number % len(EXAMPLES)]
        copy = folder / f"project_{number}"
        copy.mkdir()
        for path in sorted(path for path in example.iterdir() if path.suffix in CHECKED):
            if written == count:
                break
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".json":
                text = text.replace("{\n", f'{{\n    "dump_state": false,\n    "steps_per_print": {number + 1},\n', 1)
            elif text.startswith("#!"):
                text = text.replace("\n", f"\n# copy {number}\n", 1)
            else:
                text = f"# copy {number}\n{text}" if not text.startswith('"""') else f"{text}\n# copy {number}\n"
            (copy / path.name).write_text(text, encoding="utf-8")
            written += 1
        number += 1
    return written


def measure(files: int, runs: int) -> dict[str, Any]:
    """All figures, in seconds."""
    answer: dict[str, Any] = {"benchmark": "check"}
    print("start ...", file=sys.stderr, flush=True)
    answer["start"] = seconds_of([*GONOGO, "--version"], ROOT, runs)
    answer["one_run"] = {}
    for example in EXAMPLES:
        print(f"{example.name} ...", file=sys.stderr, flush=True)
        answer["one_run"][example.name] = seconds_of([*GONOGO, "check", "--", "bash", "launch.sh"], example, runs)
    folder = Path(tempfile.mkdtemp(prefix="gonogo-check-"))
    try:
        answer["files"] = fill(folder, files)
        print(f"{files} files ...", file=sys.stderr, flush=True)
        answer["folder"] = seconds_of([*GONOGO, "check", ".", "--statistics"], folder, max(runs // 2, 1))
    finally:
        shutil.rmtree(folder)
    answer["machine"] = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    return answer


def row(name: str, seconds: list[float]) -> str:
    return f"{name:<28} {min(seconds):>8.2f} {statistics.median(seconds):>8.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--files", type=int, default=1000, help="files in the folder")
    parser.add_argument("--runs", type=int, default=5, help="runs of each command")
    options = parser.parse_args()
    answer = measure(options.files, options.runs)
    if options.format == "json":
        print(json.dumps(answer, indent=1))
        return
    print(f"{'seconds':<28} {'least':>8} {'median':>8}")
    print(row("start", answer["start"]))
    for name, seconds in answer["one_run"].items():
        print(row(name, seconds))
    print(row(f"{answer['files']} files", answer["folder"]))


if __name__ == "__main__":
    main()
