"""Rehearsals that are made up: what a search for a cure does with them is what is tested."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import samples

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Certainty, Finding, Fix, Report, Severity, Text, Verdict
from gonogo.rehearse.progress import OnProgress
from gonogo.rehearse.request import RehearsalRequest

Judge = Callable[[RehearsalRequest], tuple[Finding, ...]]
"""What stands in the way of the project in the current folder."""


def error(hazard: str, *fixes: Fix, cause: str = "a cause") -> Finding:
    return Finding(
        hazard, Certainty.CERTAIN, Severity.ERROR, Text(hazard, hazard), Text(cause, "原因"), ranks=(0,), fixes=fixes
    )


class Rehearsals:
    """Answers each rehearsal by a judge of the folder's files; remembers what was asked."""

    def __init__(self, judge: Judge, **record: object) -> None:
        self.judge = judge
        self.record = record
        self.requests: list[RehearsalRequest] = []

    def __call__(self, request: RehearsalRequest, on_progress: OnProgress | None) -> tuple[RehearsalRecord, Report]:
        self.requests.append(request)
        found = self.judge(request)
        outcome = "raised" if found else "completed"
        phases = ["load", "init"] if found else ["load", "init", "forward", "backward", "step", "exit"]
        ranks = [samples.rank_record(rank, outcome, phases=phases, **self.record) for rank in range(2)]
        for rank in ranks:
            rank.failure = samples.failure() if found else None
        verdict = Verdict.NO_GO if found else Verdict.GO
        return samples.rehearsal_record(*ranks), Report("rehearse", verdict, found)


def project(folder: Path, **files: str) -> Path:
    """A folder with a launch of two ranks, and these files."""
    (folder / "launch.sh").write_text("#!/bin/bash\ntorchrun --nproc_per_node 2 train.py\n")
    (folder / "train.py").write_text("import torch\n\nSTEPS = 4\nprint(STEPS)\n")
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder
