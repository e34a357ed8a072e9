"""Averages of the weights over both lives: whether they, and the number of their updates, survive."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gonogo.finding.lives.life_report import LifeReport
from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.request import RehearsalRequest

_PROGRAMS = Path(__file__).parent / "programs"
_MORE = pytest.mark.very_slow


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "status", "counted"),
    [
        ("torch", "restored", "restored"),
        ("shadow load", "not-read", "restarted"),
        pytest.param("module", "restored", None, marks=_MORE),
        pytest.param("module save", "not-written", None, marks=_MORE),
        pytest.param("torch save", "not-written", "restarted", marks=_MORE),
        pytest.param("shadow", "restored", "restored", marks=_MORE),
        pytest.param("shadow again", "not-read", "restarted", marks=_MORE),
        pytest.param("shadow counter", "restored", "restarted", marks=_MORE),
        pytest.param("none", None, None, marks=_MORE),
    ],
)
def test_averaged_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, status: str | None, counted: str | None
) -> None:
    shutil.copy(_PROGRAMS / "averaged.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    command = ["python", "averaged.py", *words.split()]
    life = ("train", "save", "kill", "resume")
    _, report = rehearse_and_report(RehearsalRequest(command, gpus="1xH100-80G", as_installed=True, life=life))
    found = report.rehearsal.life if report.rehearsal is not None else None
    assert isinstance(found, LifeReport), report.skipped
    averages = [row for row in found.states if row.kind == "average"]
    assert [row.name for row in averages] == (
        ["0.weight", "2.weight", "2.bias", "3.weight", "3.bias"] if status is not None else []
    )
    assert {row.status for row in averages} == ({status} if status is not None else set())
    assert [row.status for row in found.counters if row.kind == "average"] == ([counted] if counted else [])
    is_lost = status in ("not-read", "not-written") or counted == "restarted"
    assert ("resume-average-not-restored" in {finding.hazard for finding in report.findings}) is is_lost


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("none", None),
        ("mean", "not-written"),
        ("copy", None),
        pytest.param("none eval", None, marks=_MORE),
        pytest.param("mean eval", "not-written", marks=_MORE),
        pytest.param("mean kept", "restored", marks=_MORE),
    ],
)
def test_averages_of_gathered_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, status: str | None
) -> None:
    """Under ZeRO-3 the engine writes gradients, shaped as the parameters' partitions, to a buffer in backward."""
    shutil.copy(_PROGRAMS / "averaged_engine.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    command = ["torchrun", "--nproc_per_node", "2", "averaged_engine.py", *words.split()]
    life = ("train", "save", "kill", "resume")
    _, report = rehearse_and_report(
        RehearsalRequest(command, gpus="2xH100-80G", ranks="all", as_installed=True, life=life)
    )
    found = report.rehearsal.life if report.rehearsal is not None else None
    assert isinstance(found, LifeReport), report.skipped
    averages = {row.name: row.status for row in found.states if row.kind == "average"}
    assert averages == (dict.fromkeys(["0.weight", "0.bias", "2.weight", "2.bias"], status) if status else {})
    is_reported = "resume-average-not-restored" in {finding.hazard for finding in report.findings}
    assert is_reported is (status == "not-written")
