"""Whole worlds rehearsed: every program whose ranks part is found out, and no healthy one is suspected."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from rehearse.flight_dumps import told_otherwise
from rehearse.forked_workers import forked_workers
from world_programs import HANG, HEALTHY, WORLDS, Expected, needs, world_size

from gonogo.check.static_findings import check_project
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Certainty, Severity, Verdict
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse
from gonogo.rehearse.viewer_files import ViewerFiles
from gonogo.report.json_ import report_object

SOON = [
    "hang/all_gather_object_on_one_side", "hang/all_reduce_of_different_sizes", "hang/both_receive_first",
    "hang/ddp_unused_branch", "hang/engine_generates_on_main_process", "hang/rank0_gathered_parameters",
    "hang/zero2_head_unused_on_a_rank", "healthy/ddp_find_unused_parameters",
    "healthy/engine_given_prompts_of_all_its_ranks",
    "healthy/flag_synchronised_before_branch", "healthy/sizes_exchanged_before_data", "healthy/uneven_data_ddp_join",
]  # fmt: skip
"""What `make test` rehearses: one of each kind. The others are for `make test-all`."""
BY_THE_COMMAND = "hang/mixed_image_text_zero3"
ALL = [f"hang/{name}" for name in HANG] + [f"healthy/{name}" for name in HEALTHY]


def wrong(program: str, report: dict[str, Any]) -> str | None:
    """What is wrong with a report, or None."""
    verdict, findings = report["verdict"], report["findings"]
    if program.startswith("healthy/"):
        return None if verdict == "GO" and not findings else f"{verdict} {findings} {report['skipped']}"
    if verdict != "NO-GO":
        return f"{verdict} {report['skipped']}"
    expected = Expected.of(program.removeprefix("hang/"))
    first = findings[0]
    told = {
        "hazard": first["hazard"] == expected.hazard,
        "module": first["module"] == expected.module,
        "certainty": first["certainty"] == "certain",
        "place": (expected.file, expected.line) in [(Path(span["path"]).name, span["line"]) for span in first["spans"]],
        "ranks": any(set(side) <= set(first["ranks"]) for side in expected.ranks_apart),
    }
    return None if all(told.values()) else f"{[what for what, right in told.items() if not right]} of {first}"


def copied(program: str, tmp_path: Path) -> tuple[Path, list[str], list[str]]:
    """A copy of the program, gonogo's options and the command for all its ranks."""
    ranks = world_size(WORLDS / program)
    copy = tmp_path / program
    shutil.copytree(WORLDS / program, copy)
    if "vllm" in needs(copy):
        shutil.copytree(WORLDS / "model", copy / "model")
    options = ["--ranks", "all", "--gpus", f"{ranks}xA100-80G"]
    return copy, options, ["torchrun", "--nproc_per_node", str(ranks), "train.py"]


def wrong_by_the_command(program: str, tmp_path: Path) -> str | None:
    """What is wrong with the report that ``gonogo rehearse`` prints."""
    copy, options, command = copied(program, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", "rehearse", *options, "--format", "json", "--", *command],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.stdout, done.stderr[-4000:]
    return wrong(program, json.loads(done.stdout))


def unlike_check(program: str, record: RehearsalRecord, command: list[str]) -> str | None:
    """What is wrong where the files are read too: of what check is certain, the rehearsal has to say first."""
    files = check_project(command)
    errors = [finding for finding in files.findings if finding.severity is Severity.ERROR]
    certain = {finding.hazard for finding in errors if finding.certainty is Certainty.CERTAIN}
    report = rehearsal_report(record, files=files)
    first = report.findings[0].hazard if report.findings else None
    if program.startswith("healthy/"):
        return f"check is certain of {certain}" if report.verdict is Verdict.NO_GO else None
    return f"{first} is the first, and check is certain of {certain}" if certain and first not in certain else None


def all_wrong(programs: Iterable[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is wrong with the reports on programs of two ranks, rehearsed from this process."""
    found = {}
    with forked_workers(tmp_path, 2, "A100-80G"):
        for program in programs:
            copy, _, command = copied(program, tmp_path)
            monkeypatch.chdir(copy)
            dumps = ViewerFiles(flight_recorder=copy / "dumps")
            record = rehearse(RehearsalRequest(command, gpus="2xA100-80G", ranks="all", viewers=dumps))
            said = (
                wrong(program, report_object(rehearsal_report(record), "en"))
                or unlike_check(program, record, command)
                or told_otherwise(record, copy / "dumps")
            )
            print(program, said or "as expected")
            if said is not None:
                found[program] = said
    return found


@pytest.mark.slow
def test_worlds_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all_wrong(SOON, tmp_path, monkeypatch) == {}


@pytest.mark.very_slow
def test_a_divergence_is_found_by_the_command(tmp_path: Path) -> None:
    assert wrong_by_the_command(BY_THE_COMMAND, tmp_path) is None


@pytest.mark.very_slow
@pytest.mark.timeout(3600)
def test_all_other_worlds_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [name for name in ALL if name not in (*SOON, BY_THE_COMMAND) and world_size(WORLDS / name) == 2]
    assert all_wrong(others, tmp_path, monkeypatch) == {}


@pytest.mark.very_slow
@pytest.mark.parametrize("program", [name for name in ALL if world_size(WORLDS / name) > 2])
def test_worlds_of_more_ranks_are_told_apart(program: str, tmp_path: Path) -> None:
    assert wrong_by_the_command(program, tmp_path) is None
