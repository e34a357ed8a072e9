"""What counts as brought further: the statement at which the run ended is passed, not ended at in another way."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples
from made_up import error
from msgspec.structs import replace

from gonogo.check.findings import check
from gonogo.evidence.rehearsal.record import Failure, Frame, Phase
from gonogo.finding import Finding, Report, Span, Text, Verdict
from gonogo.trials.cure.search import is_progress
from gonogo.trials.cure.trial import Trial

LIBRARY = "/venv/lib/python3.11/site-packages/transformers/trainer.py"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("import torch\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _trial(folder: Path, line: int, said: str, library_line: int, phases: tuple[Phase, ...], **more: str) -> Trial:
    frames = (
        Frame(str(folder / "train.py"), line, "main", f"statement {line}", "user"),
        Frame(LIBRARY, library_line, "train", f"line {library_line}", "library"),
    )
    kind, _, message = said.partition(": ")
    failure = Failure(kind, message, frames, "forward", 0)
    outcome = more.get("outcome", "raised")
    rank = samples.rank_record(0, outcome, phases=list(phases), failure=failure)  # type: ignore[arg-type]
    text = Text(f"statement {line}", "")
    place = Span(LIBRARY, library_line, 1, text=f"line {library_line}", label=text)
    finding = replace(error("program-raises"), spans=(place,))
    report = Report("rehearse", Verdict.NO_GO, (finding,))
    return Trial(check([], ["torchrun", "train.py"]), samples.rehearsal_record(rank), report)


def _cured(trial: Trial) -> Finding:
    return trial.blocking_findings[0]


_EARLY: tuple[Phase, ...] = ("load",)
_LATE: tuple[Phase, ...] = ("load", "init", "forward")


def test_another_statement_further_on_is_progress(folder: Path) -> None:
    before = _trial(folder, 3, "TypeError: takes 2", 100, _EARLY)
    assert is_progress(before, _trial(folder, 9, "ValueError: else", 200, _LATE), _cured(before), passes=True)


@pytest.mark.parametrize(
    ("said", "line", "phases", "outcome"),
    [
        ("TypeError: takes 2", 130, _EARLY, "raised"),
        ("TypeError: takes 3", 130, _LATE, "raised"),
        ("ValueError: else", 77, _LATE, "raised"),
        ("RuntimeError: no kernel", 131, _LATE, "unsupported"),
    ],
    ids=["alike at another line of the library", "in other words", "another exception", "what can't be rehearsed"],
)
def test_the_same_statement_is_none(
    folder: Path, said: str, line: int, phases: tuple[Phase, ...], outcome: str
) -> None:
    """A release whose code lies at other lines, and which fails alike, cures nothing."""
    before = _trial(folder, 3, "TypeError: takes 2", 100, _EARLY)
    assert not is_progress(before, _trial(folder, 3, said, line, phases, outcome=outcome), _cured(before), passes=True)
