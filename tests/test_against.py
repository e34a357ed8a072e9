"""``gonogo rehearse --against``: what may pass a gate on memory, and what may not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gonogo.finding import Report, UserError, Verdict
from gonogo.finding.rehearsal import NodeMemory, Rehearsal
from gonogo.rehearse.baseline import BaselineReport, compare_with_baseline, read_baseline

EXPECTED = Path(__file__).parent / "report/expected"
GIB = 1 << 30


class _Rank:
    def __init__(self, rank: int, peak: int) -> None:
        self.rank, self.peak_reserved_bytes = rank, peak


def report(verdict: Verdict, peaks: dict[int, int], host: int = GIB, accelerator: str = "H100-80G") -> Report:
    ranks: Any = tuple(_Rank(rank, peak) for rank, peak in peaks.items())
    rehearsal = Rehearsal(
        command=("x",), launcher="python", world_size=8, nodes=1, ranks_per_node=8, accelerator=accelerator,
        accelerator_bytes=80 * GIB, allowance_bytes=0, steps=2, seconds=1.0,
        host_per_node=NodeMemory(host, 0, None, 8, False), versions={}, divergence=None, ranks=ranks,
    )  # fmt: skip
    return Report("rehearse", verdict, rehearsal=rehearsal)


def earlier(tmp_path: Path, verdict: str, peaks: dict[int, int], host: int = GIB) -> BaselineReport:
    path = tmp_path / "last.json"
    ranks = [{"rank": rank, "peak_reserved_bytes": peak} for rank, peak in peaks.items()]
    rehearsal = {"accelerator": "H100-80G", "world_size": 8, "ranks": ranks, "host_per_node": {"peak_bytes": host}}
    path.write_text(json.dumps({"schema": "gonogo.report/1", "verdict": verdict, "rehearsal": rehearsal}))
    return read_baseline(path)


@pytest.mark.parametrize(
    ("was", "now", "growth", "passes", "said"),
    [
        (("GO", {0: 40 * GIB}), (Verdict.GO, {0: 40 * GIB}), 0, True, "no peak grew by more than 0 %"),
        (("GO", {0: 40 * GIB}), (Verdict.GO, {0: 41 * GIB}), 5, True, "no peak grew"),
        (("GO", {0: 40 * GIB}), (Verdict.GO, {0: 43 * GIB}), 5, False, "rank 0 grew from 40.0 GiB to 43.0 GiB (+7.5%"),
        (("GO", {0: 40 * GIB, 1: GIB}), (Verdict.GO, {1: 2 * GIB}), 5, False, "rank 1 grew"),
        (("GO", {0: 40 * GIB}), (Verdict.GO, {0: 30 * GIB}), 0, True, "no peak grew"),
        (("GO", {0: GIB}), (Verdict.CANNOT_TELL, {0: GIB}), 5, False, "CANNOT-TELL; it was GO"),
        (("CANNOT-TELL", {0: GIB}), (Verdict.NO_GO, {0: GIB}), 5, False, "NO-GO; it was CANNOT-TELL"),
        (("NO-GO", {0: GIB}), (Verdict.GO, {0: GIB}), 5, True, "no worse"),
        (("GO", {0: 100 << 20}), (Verdict.GO, {0: 150 << 20}), 1, True, "no peak grew"),  # noise of a small program
    ],
)
def test_what_passes(
    tmp_path: Path, was: tuple[str, dict[int, int]], now: tuple[Verdict, dict[int, int]], growth: float, passes: bool,
    said: str,
) -> None:  # fmt: skip
    found = compare_with_baseline(report(*now), earlier(tmp_path, *was), growth)
    assert (not found.regressed) is passes
    assert found.exit_status == (found.verdict.exit_status if passes else 1)
    assert said in found.notes[-1].en or said in found.notes[0].en


def test_host_memory_counts_and_another_machine_is_told(tmp_path: Path) -> None:
    found = compare_with_baseline(
        report(Verdict.GO, {0: GIB}, host=3 * GIB, accelerator="A100-80G"), earlier(tmp_path, "GO", {0: GIB}), 2
    )
    assert found.regressed
    assert "rehearsed on 8 x A100-80G, the earlier report on 8 x H100-80G" in found.notes[0].en
    assert "host memory per node" in found.notes[1].en


@pytest.mark.parametrize("name", ["rehearse.en.json", "check.en.json"])
def test_reports_of_rehearsals_are_read_and_others_refused(name: str) -> None:
    paths = [
        path
        for path in sorted(EXPECTED.glob("*.json"))
        if json.loads(path.read_text())["command"] == name.split(".")[0]
    ]
    assert paths
    for path in paths:
        if name.startswith("rehearse"):
            assert read_baseline(path).rehearsal.ranks
        else:
            with pytest.raises(UserError):
                read_baseline(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": "other/1"}', "[" * 9000])
def test_what_is_no_report_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "last.json").write_text(text)
    (tmp_path / "train.py").write_text("raise SystemExit\n")
    words = ["rehearse", "--against", "last.json", "--gpus", "1xH100-80G", "--", "python", "train.py"]
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "--against last.json: not a rehearsal report" in done.stderr
    assert len(done.stderr.splitlines()) == 1
