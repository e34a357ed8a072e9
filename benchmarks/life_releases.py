"""Public bugs of saving and resuming: what gonogo says of the release that has each, and of the one that mends it.

    python benchmarks/life_releases.py [--only WORDS]

Each program is rehearsed twice, with ``--with PACKAGE==VERSION``: the broken release has to be told by the finding and
the state that the thread names, the mended one is GO without it. What the second and third lose, and their mended
releases don't, was seen in real runs on the CPU, where accelerate has no FSDP2 for the first.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "life" / "programs"
_RESUMED = "--life train,save,kill,resume --gpus 2xH100-80G --ranks all"
_SERVED = "--life train,save,serve --gpus 1xH100-80G --ranks all"


@dataclass(frozen=True)
class Bug:
    """A thread, the releases around its fix, and what is found with the first; ``named`` is a state that it names."""

    thread: str
    package: str
    broken: str
    mended: str
    options: str
    command: str
    hazard: str
    named: str = ""
    verdict: str = "NO-GO"


BUGS = (
    Bug(
        "https://github.com/huggingface/accelerate/issues/3971", "accelerate", "1.12.0", "1.13.0",
        _RESUMED, "torchrun --nproc_per_node 2 accelerated.py fsdp2", "resume-optimizer-not-restored", "exp_avg",
    ),
    Bug(
        "https://github.com/huggingface/accelerate/pull/4071", "accelerate", "1.14.0", "1.15.0",
        f"{_RESUMED} --steps 5", "torchrun --nproc_per_node 2 epochs.py", "resume-data-seen-again", verdict="GO",
    ),
    Bug(
        "https://github.com/huggingface/transformers/issues/46620", "transformers", "5.12.1", "5.22.2",
        f"{_SERVED} --serve-with 'python saved.py result'", "python saved.py", "result-weights-lost",
        "layer.weight",
    ),
)  # fmt: skip


def rehearsed(bug: Bug, version: str) -> dict[str, Any]:
    """The report on the program with that release. Raises RuntimeError where there is none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("__pycache__"))
        words = [*shlex.split(bug.options), "--with", f"{bug.package}=={version}", "--yes", "--format", "json"]
        run = subprocess.run(
            [sys.executable, "-m", "gonogo", "rehearse", *words, "--", *shlex.split(bug.command)],
            cwd=folder, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
    if not run.stdout.startswith("{"):
        raise RuntimeError(f"{bug.thread}, {bug.package} {version}: {run.stdout[-1000:]} {run.stderr[-1000:]}")
    return dict(json.loads(run.stdout))


def wrong_of(bug: Bug, version: str, report: dict[str, Any]) -> str:
    """What is wrong in an answer; nothing if it is right."""
    hazards = [finding["hazard"] for finding in report["findings"]]
    if version == bug.mended:
        return "" if report["verdict"] == "GO" and bug.hazard not in hazards else "not GO"
    if report["verdict"] != bug.verdict or bug.hazard not in hazards:
        return f"not {bug.verdict} with {bug.hazard}"
    return "" if bug.named in json.dumps(report["findings"]) else f"{bug.named} is not named"


def main() -> int:
    """Rehearse each bug with both releases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    bugs = [bug for bug in BUGS if chosen.only in bug.thread]
    right = 0
    for bug in bugs:
        for version in (bug.broken, bug.mended):
            try:
                report = rehearsed(bug, version)
            except RuntimeError as error:
                print(f"wrong: {error}", flush=True)
                continue
            wrong = wrong_of(bug, version, report)
            right += not wrong
            found = ", ".join(sorted({finding["hazard"] for finding in report["findings"]}))
            skipped = [one["what"] for one in report["skipped"]] if wrong else ""
            said = f"{report['verdict']} {found}".strip()
            judged = f"wrong ({wrong})" if wrong else "right"
            print(f"{judged}: {bug.thread}, {bug.package} {version}: {said} {skipped}", flush=True)
    print(f"{right} of {2 * len(bugs)} answers are right")
    return 0 if right == 2 * len(bugs) else 1


if __name__ == "__main__":
    sys.exit(main())
