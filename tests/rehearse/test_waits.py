"""Programs of ``tests/waits`` rehearsed: who waits for whom is told, and no healthy twin is suspected."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from rehearse.forked_workers import forked_workers

from gonogo.finding import Verdict
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse

WAITS = Path(__file__).parent.parent / "waits"
EXPECTED = json.loads((WAITS / "expected.json").read_text())


def test_the_lines_that_are_expected_are_in_the_programs() -> None:
    for name, stated in EXPECTED.items():
        lines = {line.strip() for line in (WAITS / name / "train.py").read_text().splitlines()}
        assert set(stated["sides"]) <= lines, name
        assert bool(stated["hangs_in"]) == bool(stated["sides"]), name


@pytest.mark.slow
def test_threads_and_ranks_that_wait_are_told_with_each_sides_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {
        "queue_filled_under_the_lock": Verdict.NO_GO,
        "pause_until_samples_come": Verdict.CANNOT_TELL,
        "gather_in_the_sending_thread": Verdict.GO,
    }
    with forked_workers(tmp_path, 2, "A100-80G"):
        for name, verdict in wanted.items():
            folder = tmp_path / name
            shutil.copytree(WAITS / name, folder)
            monkeypatch.chdir(folder)
            command = ["torchrun", "--nproc_per_node", "2", "train.py"]
            report = rehearsal_report(rehearse(RehearsalRequest(command, gpus="2xA100-80G", ranks="all")))
            assert report.verdict is verdict, name
            lines = (folder / "train.py").read_text().splitlines()
            told = {lines[span.line - 1].strip() for one in report.findings for span in one.spans}
            assert set(EXPECTED[name]["sides"]) <= told, name
