"""Whole reports, one of each command, in every format and both languages: ``tests/report/expected/``.

``make snapshots`` writes them anew; what has changed is to be read before it is committed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast
from unittest.mock import patch

import msgspec
from packaging.version import Version
from plan_facts import request
from plan_meter import FakeMeter

from gonogo.check.environment import environment_report
from gonogo.check.findings import check
from gonogo.diagnose.findings import read_failure
from gonogo.evidence.environment.reading import read_environment
from gonogo.evidence.guarded.guarded_run import GuardedRun
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Report
from gonogo.finding.call import Invocation
from gonogo.guard.report import guarded_run_report
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.request import RehearsalRequest
from gonogo.report import render
from gonogo.report.answer.command_placeholders import with_invocation
from gonogo.trials.bisect.bisect import BisectRequest, bisect
from gonogo.trials.bisect.report import bisect_report
from gonogo.trials.plan.answer import plan_report
from gonogo.trials.plan.measure import Meter
from gonogo.trials.plan.search import search

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
EXPECTED = Path(__file__).parent / "expected"
ENDINGS = {"text": "txt", "json": "json", "markdown": "md", "sarif": "sarif", "github": "github.txt", "junit": "xml"}
DIRECT_USE = "zero3-direct-param-use-invalid-gradient"


def _rehearsed(name: str, case: str) -> Report:
    path = TESTS / "hazards" / name / f"{case}.record.json"
    return rehearsal_report(msgspec.json.decode(path.read_bytes(), type=RehearsalRecord), "/work")


def _checked() -> Report:
    before = Path.cwd()
    os.chdir(ROOT / "examples" / "slam_omni_dummy_loss")
    try:
        return check(command=["bash", "launch.sh"], use_installed=False).report
    finally:
        os.chdir(before)


def _diagnosed() -> Report:
    """Its path is told from the root: lines are broken by its length, and the checkout may lie anywhere."""
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        return read_failure(["tests/hazards/cpu-ram-oom-killed/bad.log"]).report()
    finally:
        os.chdir(before)


def _guarded() -> Report:
    path = TESTS / "hazards" / "rank-late-at-collective" / "bad_data_loader.guard.json"
    return guarded_run_report(msgspec.json.decode(path.read_bytes(), type=GuardedRun), "/home/user/finetune")


def _bisected() -> Report:
    """deepspeed 0.14.1 breaks a program, by two records of rehearsals."""
    hazard = "zero3-offload-clip-grad-device-regression"
    runs, fails = _rehearsed(hazard, "good_rehearsed_other_deepspeed"), _rehearsed(hazard, "bad_rehearsed_minicpmv")

    def attempt(request: RehearsalRequest, on_progress: object) -> tuple[Report, bool]:
        return (runs if request.with_packages[-1].endswith("0.14.0") else fails), False

    listed = [Version(f"0.14.{patch}") for patch in range(4)]
    request = BisectRequest("deepspeed", "0.14.0", "0.14.3", RehearsalRequest(["bash", "launch.sh"]))
    with patch("gonogo.trials.bisect.bisect.available_releases", lambda name: listed):
        return bisect_report(bisect(request, attempt))


def _planned() -> Report:
    plan = search(request(Path("model"), sharding="any"), cast(Meter, FakeMeter()), lambda text: None)
    return plan_report(replace(plan, seconds=30.0))


def _environment() -> Report:
    path = next(iter(sorted((TESTS / "hazards").glob("*/*/environment.json"))))
    return environment_report(read_environment(SourceFile("environment.json", path.read_bytes())))


RUNS: dict[str, Callable[[], Report]] = {
    "check": _checked,
    "rehearse": lambda: _rehearsed(DIRECT_USE, "bad_rehearsed_slam_omni"),
    "rehearse_go": lambda: _rehearsed(DIRECT_USE, "good_rehearsed_term_removed"),
    "rehearse_memory": lambda: _rehearsed("gpu-oom-model-states", "bad"),
    "diagnose": _diagnosed,
    "run": _guarded,
    "bisect": _bisected,
    "plan": _planned,
    "env": _environment,
}


CALLS = {
    "check": Invocation(("bash", "launch.sh")),
    "rehearse": Invocation(("bash", "launch.sh"), ("--gpus", "8xH100-80G")),
    "rehearse_go": Invocation(("bash", "launch.sh"), ("--gpus", "8xH100-80G")),
    "rehearse_memory": Invocation(("bash", "launch.sh"), ("--gpus", "8xH100-80G")),
    "diagnose": Invocation(files=("train.log",)),
    "bisect": Invocation(("bash", "launch.sh")),
    "plan": Invocation(options=("--gpus", "8xA100-80G"), files=("Qwen/Qwen2-7B",)),
}
"""What the command line would have been; the others' reports know their command."""


def written(name: str) -> dict[str, str]:
    """The report of one run in every format and language, by the name of its file."""
    report = RUNS[name]()
    if name in CALLS:
        report = with_invocation(report, CALLS[name])
    return {
        f"{name}.{language}.{ENDINGS[format_name]}": render(report, format_name, language).replace(str(ROOT), "ROOT")
        for format_name in ENDINGS
        for language in ("en", "zh")
    }


def write() -> None:
    """Write all of them anew and name those that have changed."""
    EXPECTED.mkdir(exist_ok=True)
    for name in RUNS:
        for file_name, text in written(name).items():
            path = EXPECTED / file_name
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
                print(path.relative_to(ROOT))


if __name__ == "__main__":
    write()
