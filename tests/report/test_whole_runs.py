"""Whole reports of every command against what was read and agreed to: ``tests/report/expected/``.

Where a difference is wanted, ``make snapshots`` writes the files anew.
"""

from __future__ import annotations

import io
import json

import msgspec
import pytest
from whole_runs import CALLS, EXPECTED, RUNS, written

from gonogo.finding import Text, Verdict
from gonogo.finding.call import Invocation
from gonogo.finding.lives.life_report import LifeReport
from gonogo.report import FORMATS, render
from gonogo.report.answer.command_placeholders import with_invocation
from gonogo.report.answer.headline import make_headline
from gonogo.report.answer.next_step import next_step
from gonogo.report.page import Page
from gonogo.report.text import print_report


@pytest.mark.parametrize("name", RUNS)
def test_reports_are_as_expected(name: str) -> None:
    for file_name, text in written(name).items():
        assert text == (EXPECTED / file_name).read_text(encoding="utf-8"), f"{file_name}: see `make snapshots`"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", RUNS)
def test_the_answer_comes_first(name: str, language: str) -> None:
    """First line the verdict and what it is of, second the reason, third the next command: whatever the width is."""
    report = with_invocation(RUNS[name](), CALLS.get(name, Invocation()))
    buffer = io.StringIO()
    print_report(report, Page(buffer, width=400), language)
    first, second, third = buffer.getvalue().splitlines()[:3]
    answer = make_headline(report)
    assert first.startswith(f" {report.verdict.value} ")
    assert (answer.scope is not None) is (report.verdict is Verdict.GO)
    assert answer.scope is None or answer.scope.in_language(language) in first
    assert second == " ".join(answer.reason.in_language(language).split())
    assert third.startswith(("next: ", "下一步："))
    assert "COMMAND" not in third


def test_a_run_that_got_worse_does_not_look_like_a_go() -> None:
    worse = (Text("against last.json: the peak grew", "与 last.json 相比：峰值增加"),)
    report = msgspec.structs.replace(RUNS["rehearse_go"](), notes=worse, regressed=worse)
    for format_name in FORMATS:
        written = render(report, format_name, "en")
        assert "REGRESSED" in written, format_name
    assert render(report, "text", "en").startswith(" REGRESSED (GO, but worse than before)")
    assert report.exit_status == 1
    assert json.loads(render(report, "json", "en"))["verdict"] == "GO"


def test_nothing_else_lies_there() -> None:
    assert {path.name.partition(".")[0] for path in EXPECTED.iterdir()} == set(RUNS)


def test_what_follows_a_rehearsal_that_failed() -> None:
    """``cure``, of a run of two lives with the options that say so."""
    failed = with_invocation(RUNS["rehearse_memory"](), CALLS["rehearse_memory"])
    assert failed.verdict is Verdict.NO_GO
    assert next_step(failed).command == "gonogo cure --gpus 8xH100-80G -- bash launch.sh"
    assert failed.rehearsal is not None
    life = LifeReport(8, 8, ("bash", "launch.sh"), 4, True, (), (), (), "goes-on", ("checkpoint-4",), 1)
    lived = msgspec.structs.replace(failed, rehearsal=msgspec.structs.replace(failed.rehearsal, life=life))
    assert lived.call is not None
    own = (("--life", "save,kill,resume"), ("--resume-with=--resume out",), ("--ranks", "all"))
    lived = msgspec.structs.replace(lived, call=msgspec.structs.replace(lived.call, own_options=own))
    assert next_step(lived).command == (
        "gonogo cure --gpus 8xH100-80G --life save,kill,resume '--resume-with=--resume out' -- bash launch.sh"
    )
