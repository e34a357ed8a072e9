"""Programs that are saved, killed and resumed for real on the CPU, beside what is said of them without a GPU.

The truth is the program's own: sums of its parameters and moments, its counters, random state and batch, at the step
after the save in the first life and at the first step of the second.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cells import PROGRAMS, STAGES

from gonogo.finding import Report, Verdict
from gonogo.finding.lives.life_report import LifeReport
from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.request import RehearsalRequest


def really(folder: Path, command: list[str]) -> list[dict[str, dict[str, Any]]]:
    """By rank: what the program tells at its moments, over both of its lives."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TRUTH": str(folder / "told"), "OMP_NUM_THREADS": "1"}
    for life in ("first", "second"):
        subprocess.run(
            command, cwd=folder, env={**environment, "TRUTH_LIFE": life}, check=True, capture_output=True, timeout=300
        )
    told = []
    for path in sorted(folder.glob("told.*")):
        moments = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        told.append({moment["moment"]: moment for moment in moments})
        path.unlink()
    return told


def said(
    folder: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[Report, LifeReport]:
    """What gonogo says of the same command, without a GPU."""
    monkeypatch.chdir(folder)
    options = {"gpus": "2xH100-80G", "ranks": "all", "as_installed": True, "life": STAGES, **options}
    _, report = rehearse_and_report(RehearsalRequest(command, **options))
    assert report.rehearsal is not None
    life = report.rehearsal.life
    assert isinstance(life, LifeReport), report.skipped
    return report, life


def held_equal(before: dict[str, Any], after: dict[str, Any], kind: str) -> dict[str, bool]:
    return {name: after[kind].get(name) == value for name, value in before[kind].items()}


CELLS = {
    "": set(),
    "optimizer": {"resume-optimizer-not-restored"},
    "step": {"resume-optimizer-not-restored"},
    "swapped": {"resume-optimizer-not-restored"},
    "scheduler": {"resume-schedule-restarted"},
    "data": {"resume-data-seen-again"},
    "rng": {"resume-random-state-not-restored"},
    "prefix": {"resume-weights-not-restored"},
    "half": {"resume-weights-not-restored"},
    "optimizer scheduler data rng": {
        *("resume-optimizer-not-restored", "resume-schedule-restarted", "resume-data-seen-again"),
        "resume-random-state-not-restored",
    },
}


@pytest.mark.parametrize(
    "without",
    [pytest.param(cell, marks=pytest.mark.slow if cell in ("", "half") else pytest.mark.very_slow) for cell in CELLS],
)
def test_a_loop_says_what_it_really_keeps(without: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of the truth by itself: what was equal after the resume is said to be restored, what wasn't is not."""
    real, rehearsal = tmp_path / "real", tmp_path / "rehearsed"
    for folder in (real, rehearsal):
        shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    arguments = without.split()
    (moments,) = really(real, [sys.executable, "plain.py", *arguments])
    report, life = said(rehearsal, ["python", "plain.py", *arguments], monkeypatch)
    before, after = moments["next"], moments["resumed"]

    weights = {row.name: row.status == "restored" for row in life.states if row.kind == "parameter"}
    assert weights == held_equal(before, after, "parameters")
    moments_told = {
        f"{row.name}.{row.slot}": row.status == "restored" for row in life.states if row.kind == "optimizer"
    }
    assert moments_told == held_equal(before, after, "moments")
    counters = {counter.kind: counter.status == "restored" for counter in life.counters}
    assert counters == {
        "optimizer": before["steps"] == after["steps"], "scheduler": before["scheduler"] == after["scheduler"],
    }  # fmt: skip
    assert (life.data == "goes-on") == (before["batch"] == after["batch"])
    (cpu,) = [row for row in life.random if row.generator == "torch"]
    assert (cpu.status == "restored") == (before["rng"] == after["rng"])

    assert {finding.hazard for finding in report.findings if finding.hazard.startswith("resume-")} == CELLS[without]
    fails = CELLS[without] - {"resume-data-seen-again", "resume-random-state-not-restored"}
    assert report.verdict is (Verdict.NO_GO if fails else Verdict.GO)
