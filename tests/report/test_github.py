"""Workflow commands: one line a finding, which the runner reads back as it was meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import samples
from msgspec.structs import replace

from gonogo.finding import Certainty, Finding, Report, Severity, Span, Text, Verdict
from gonogo.report import render

ANSWER = 3
"""Lines of the answer, which stand before the annotations."""
COMMAND = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)")


def lines(*findings: Finding, language: str = "en") -> list[str]:
    report = Report(command="check", verdict=Verdict.NO_GO, findings=findings)
    return render(report, "github", language).splitlines()[ANSWER:]


def read(line: str) -> tuple[str, dict[str, str], str]:
    """The command as the runner reads it."""
    match = COMMAND.fullmatch(line)
    assert match, line

    def back(text: str) -> str:
        for escape, meant in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            text = text.replace(escape, meant)
        return text

    properties = dict(part.split("=", 1) for part in match[2].split(","))
    return match[1], {key: back(value) for key, value in properties.items()}, back(match[3])


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_finding_is_an_annotation_and_one_line_sums_up(language: str) -> None:
    found = samples.finding()
    written = render(samples.report(), "github", language).splitlines()[ANSWER:]
    name, properties, message = read(written[0])
    assert name == "error"
    assert properties["file"] == "train.py"
    assert (properties["line"], properties["endLine"], properties["col"]) == ("41", "41", "12")
    assert properties["title"] == f"{found.title.in_language(language)} [{found.hazard}]"
    assert found.cause.in_language(language) in message
    assert found.cure[0].in_language(language) in message
    name, properties, _ = read(written[1])
    assert name == "warning"
    assert "file" not in properties
    assert read(written[2])[0] == "notice"  # what was not covered
    assert written[3:] == [
        {"en": "gonogo rehearse: NO-GO, 1 error, 1 warning", "zh": "gonogo rehearse：NO-GO，1 个错误，1 个警告"}[
            language
        ]
    ]


@pytest.mark.parametrize(
    ("severity", "certainty", "name"),
    [
        (Severity.ERROR, Certainty.CERTAIN, "error"),
        (Severity.ERROR, Certainty.LIKELY, "warning"),
        (Severity.WARNING, Certainty.LIKELY, "warning"),
        (Severity.ERROR, Certainty.POSSIBLE, "notice"),
        (Severity.NOTE, Certainty.CERTAIN, "notice"),
    ],
)
def test_the_command_says_how_sure_it_is(severity: Severity, certainty: Certainty, name: str) -> None:
    assert read(lines(replace(samples.finding(), severity=severity, certainty=certainty))[0])[0] == name


def test_escapes_are_read_back_as_they_were_meant() -> None:
    cause = Text("100%\n::error::x\r\na, b: c %0A", "100%\n::error::x")
    found = replace(
        samples.finding(), title=Text("a, b: 100%", "a"), cause=cause, spans=(Span("a,b:c 50%\nd.py", 2, 1),)
    )
    written = lines(found)
    assert len(written) == 2
    _, properties, message = read(written[0])
    assert properties["file"] == "a,b:c 50%\nd.py"
    assert properties["title"].startswith("a, b: 100% [")
    assert message.startswith("100%\n::error::x\na, b: c %0A (certain")


def test_columns_only_within_a_line() -> None:
    def properties(span: Span) -> dict[str, str]:
        return read(lines(replace(samples.finding(), spans=(span,)))[0])[1]

    within = properties(Span("a.py", 2, 3, end_line=2, end_column=7))
    assert (within["line"], within["endLine"], within["col"], within["endColumn"]) == ("2", "2", "3", "7")
    across = properties(Span("a.py", 2, 3, end_line=5, end_column=7))
    assert (across["line"], across["endLine"]) == ("2", "5")
    assert not {"col", "endColumn"} & across.keys()


def test_standard_input_is_no_file() -> None:
    assert "file" not in read(lines(replace(samples.finding(), spans=(Span("<stdin>", 2),)))[0])[1]


def test_nothing_is_written_to_the_steps_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    lines(samples.finding())
    assert summary.read_text() == ""


def test_a_go_without_findings_is_the_answer_alone() -> None:
    *answer, last = render(Report("check", Verdict.GO), "github", "en").splitlines()
    assert len(answer) == ANSWER
    assert answer[0] == last == "gonogo check: GO (files only)"


def test_a_reason_is_never_taken_for_a_command() -> None:
    found = replace(samples.finding(), title=Text("::error::x", "::error::x"))
    written = render(Report("check", Verdict.NO_GO, (found,)), "github", "en").splitlines()
    assert written[1].startswith("reason: ::error::x")
