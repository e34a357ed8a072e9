"""What gonogo says of a life, beside what the program really had of its state."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cells import STAGES, Cell, write_project
from frameworks_installed import framework

from gonogo.finding import Report, Verdict
from gonogo.finding.lives.life_report import LifeReport
from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.request import RehearsalRequest

_NEAR = 0.03
_SMALL_FILES = 16 << 10
"""On the CPU there are no random states of accelerators, and tables in files have other names."""
_HELD = ("restored", "unchanged")


def judged(cell: Cell, truth: Mapping[str, Any] | None, folder: Path) -> tuple[list[str], str]:
    """What is wrong in the answer, one line each, and the answer in short."""
    report = _rehearsed(cell, folder)
    hazards = {f.hazard for f in report.findings if f.hazard.startswith(("resume-", "checkpoint-"))}
    wrong = [] if report.verdict is cell.verdict else [f"{report.verdict.name}, not {cell.verdict.name}"]
    if hazards != cell.hazards:
        wrong.append(f"hazards {sorted(hazards)}, not {sorted(cell.hazards)}")
    if report.verdict is not Verdict.CANNOT_TELL and truth is not None:
        wrong += _unlike(report, truth)
    if wrong:  # an answer that the machine's load cut short says so
        wrong += [f"skipped: {one.what.en}: {one.why.en}" for one in report.skipped]
    others = sorted({f.hazard for f in report.findings} - hazards)
    return wrong, f"{report.verdict.name} {', '.join([*sorted(hazards), *(f'({name})' for name in others)])}".strip()


def _rehearsed(cell: Cell, folder: Path) -> Report:
    write_project(folder, cell.framework)
    before = os.getcwd()
    path = os.environ.get("PYTHONPATH")
    if cell.framework is not None:
        os.environ["PYTHONPATH"] = str(framework(cell.framework))
        os.environ["NPROC_PER_NODE"] = str(cell.ranks)  # by which ms-swift is launched
    os.chdir(folder)
    try:
        _, report = rehearse_and_report(
            RehearsalRequest(
                shlex.split(cell.command), gpus=f"{cell.ranks}xH100-80G", ranks="all", as_installed=True, life=STAGES,
                resume_with=cell.resume_with, resume_on=f"{cell.then}xH100-80G" if cell.then != cell.ranks else None,
            )
        )  # fmt: skip
    finally:
        os.chdir(before)
        if path is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = path
    return report


def _unlike(report: Report, truth: Mapping[str, Any]) -> Iterator[str]:
    """Each part of the truth by itself."""
    life = report.rehearsal.life if report.rehearsal is not None else None
    if "error" in truth:
        if isinstance(life, LifeReport):
            yield f"it trains on, and really raises {truth['error']}"
        return
    if not isinstance(life, LifeReport):
        yield "the resumed run has no state"
        return
    costs = life.costs
    if abs(costs.disk_bytes - truth["disk_bytes"]) > max(_NEAR * truth["disk_bytes"], _SMALL_FILES):
        yield f"{costs.disk_bytes} bytes on disk, really {truth['disk_bytes']}"
    for kind, really in (("parameter", truth["parameters"]), ("buffer", truth["buffers"])):
        drawn = {row.name for row in life.states if row.status == "drawn-anew"}  # which may be as before by its seed
        said = {row.name for row in life.states if row.kind == kind and row.status not in _HELD} - drawn
        persistent = {row.name for row in life.states if row.kind == kind}
        if said != {name for name in {*really} - drawn if kind == "parameter" or name in persistent}:
            yield f"{kind}s lost: {sorted(said)[:4]}, really {really[:4]}"
    moments = any(row.kind == "optimizer" and row.status not in _HELD for row in life.states)
    if moments != bool(truth["moments"]):
        yield f"moments lost: {moments}, really {truth['moments'][:4]}"
    for kind, (before, after) in (("optimizer", truth["steps"]), ("scheduler", truth["scheduler"])):
        same = [row.status == "restored" for row in life.counters if row.kind == kind and row.status != "unknown"]
        if same and before is not None and all(same) != (before == after):
            yield f"{kind} stands as before: {all(same)}, really {before} and {after}"
    if (
        truth["data_goes_on"] is not None
        and life.data != "unknown"
        and (life.data == "goes-on") != truth["data_goes_on"]
    ):
        yield f"data {life.data}, really goes on: {truth['data_goes_on']}"
    (cpu,) = (row for row in life.random if row.generator == "torch")
    if cpu.status == "restored" and not truth["random_restored"]:  # of which the reverse can be by chance
        yield f"random state {cpu.status}, really restored: {truth['random_restored']}"
