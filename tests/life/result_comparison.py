"""What gonogo says of a checkpoint's result, beside what transformers really had of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from results import ResultCell, write_base

from gonogo.finding import Report
from gonogo.finding.lives.result_report import ResultReport
from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.lives import StageCommands
from gonogo.rehearse.request import RehearsalRequest


def judged(cell: ResultCell, truth: Mapping[str, Any] | None, folder: Path) -> tuple[list[str], str]:
    """What is wrong in the answer, one line each, and the answer in short."""
    write_base(folder)
    before = os.getcwd()
    os.chdir(folder)
    given = {"convert": cell.convert, "merge": cell.merge}
    stages = ("train", "save", *(stage for stage, command in given.items() if command is not None), "serve")
    commands = {stage: f"python {command}" for stage, command in given.items() if command is not None}
    commands |= {"serve": cell.engine} if cell.engine is not None else {}
    try:
        _, report = rehearse_and_report(
            RehearsalRequest(
                shlex.split(cell.command), gpus="2xH100-80G", ranks="all", as_installed=True, life=stages,
                stage_commands=StageCommands(**commands),
            )
        )  # fmt: skip
    finally:
        os.chdir(before)
    wrong = [] if report.verdict is cell.verdict else [f"{report.verdict.name}, not {cell.verdict.name}"]
    if truth is not None:
        wrong += _unlike(report, truth)
    return wrong, f"{report.verdict.name} {', '.join(sorted({finding.hazard for finding in report.findings}))}".strip()


def _unlike(report: Report, truth: Mapping[str, Any]) -> Iterator[str]:
    result = report.rehearsal.result if report.rehearsal is not None else None
    if "error" in truth:
        if isinstance(result, ResultReport):
            yield f"it goes through, and {truth['stage']} really raises {truth['error']}"
        return
    if not isinstance(result, ResultReport):
        yield "there is no result"
        return
    lost = {row.name for row in result.states if row.status in ("not-written", "not-read", "partly")}
    drawn = {row.name for row in result.states if row.status == "drawn-anew"}
    missing = set(truth["missing"])
    if set(truth["lost"]) - lost or lost - {*truth["lost"], *missing}:  # ones, as in norms, are alike when drawn anew
        yield f"lost: {sorted(lost)[:4]}, really {truth['lost'][:4]}"
    if drawn - missing or missing - lost - drawn:
        yield f"initialized anew: {sorted(drawn)[:4]}, really {truth['missing'][:4]}"
