"""Every report answers first: the verdict, then the reason, then the next command, each on one line."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from pages import compared_report, parted_report, rehearsed_report
from whole_runs import CALLS, RUNS

from gonogo.finding import Report, Text, Verdict
from gonogo.finding.call import Invocation
from gonogo.finding.trials.cured import Cure, TrialOutcome
from gonogo.prepare.output import write_list
from gonogo.prepare.prepare import Preparation
from gonogo.prepare.required_inputs import RequiredInput
from gonogo.report import render
from gonogo.report.answer.command_placeholders import with_invocation
from gonogo.report.answer.headline import badge, make_headline


def cured_report() -> Report:
    before, after = (
        TrialOutcome("NO-GO", ("zero3-direct-param-use-invalid-gradient",), "0"),
        TrialOutcome("GO", (), "0", 30 << 30, 78 << 30, allowance_bytes=2 << 30),
    )
    cure = Cure(
        True, True, before, after, "--- a\n+++ b\n", "cure.patch", "/home/me/project", (), {}, None, (), (), (), 3, 9.0
    )
    return Report("cure", Verdict.GO, cure=cure, notes=(Text("cured", "已修复"),))


OWN = {
    "cure": lambda _: cured_report(),
    "compare": compared_report,
    "parted": lambda _: parted_report(),
    "go": lambda _: rehearsed_report(),
}
COMMAND = Invocation(("bash", "launch.sh"), ("--gpus", "8xH100-80G"))


def made(name: str, folder: Path) -> Report:
    report = OWN[name](folder) if name in OWN else RUNS[name]()
    return with_invocation(report, CALLS.get(name, COMMAND)) if report.call is None else report


def plain(line: str) -> str:
    return re.sub(r"[*`\\_]|^#+ ", "", line)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", [*RUNS, *OWN])
def test_verdict_reason_and_next_command_are_the_first_three_lines(name: str, language: str, tmp_path: Path) -> None:
    report = made(name, tmp_path)
    answer = make_headline(report)
    reason, verdict = answer.reason.in_language(language), badge(report, language)
    todo = answer.next.command or answer.next.what.in_language(language)
    for format_name in ("text", "markdown", "github"):
        lines = [plain(line) for line in render(report, format_name, language).splitlines() if line.strip()][:3]
        assert verdict in lines[0], format_name
        assert plain(reason) in lines[1], format_name
        assert lines[2].startswith(("next:", "下一步：")), format_name
        assert plain(todo) in lines[2], format_name
    said = json.loads(render(report, "json", language))["answer"]
    assert said["says"].startswith(verdict)
    assert (said["reason"], said["next"]) == (reason, answer.next.command)
    page = render(report, "html", language)
    places = [page.index(mark) for mark in ("<h1", 'class="reason"', 'class="next"')]
    others = [page.find(mark) for mark in ('class="findings"', "<table")]
    assert places == sorted(places)
    assert all(place == -1 or place > places[-1] for place in others)


HERE, MADE = RequiredInput("model", "model", state="here"), RequiredInput("data", "data/train.jsonl", state="made")
CAN_BE, LACKS = (RequiredInput("data", "rows.jsonl", state=state) for state in ("can-be-made", "missing"))


@pytest.mark.parametrize(
    ("done", "made", "lines"),
    [
        (
            Preparation([HERE, MADE], 2048, 64, "gonogo-prepared"),
            True,
            [
                " GO (prepared)   gonogo prepare",
                "written: gonogo-prepared/ (at least 64 rows per data set, about 2048 tokens each); gonogo rehearse "
                "uses it automatically",
                "next: gonogo rehearse -- bash launch.sh",
            ],
        ),
        (
            Preparation([HERE, CAN_BE], 2048, 64),
            False,
            [
                " CANNOT-TELL   gonogo prepare",
                "1 of 2 items needed here can be generated: rows.jsonl",
                "next: gonogo prepare -- bash launch.sh",
            ],
        ),
        (
            Preparation([LACKS], 2048, 64),
            True,
            [
                " CANNOT-TELL   gonogo prepare",
                "1 of 1 items needed here could not be provided: rows.jsonl",
                "next: gonogo rehearse -- bash launch.sh",
            ],
        ),
    ],
    ids=["made", "listed", "lacking"],
)
def test_a_preparation_answers_first_too(done: Preparation, made: bool, lines: list[str]) -> None:
    stream = io.StringIO()
    write_list(stream, done, ["bash", "launch.sh"], "text", "en", made)
    assert stream.getvalue().splitlines()[:3] == lines


def test_a_cures_memory_is_that_of_the_whole_gpu_as_a_rehearsals_is() -> None:
    text = render(cured_report(), "text", "en")
    assert "GPU memory used  32.0 GiB / 80.0 GiB (40 %)" in re.sub(r"  +", "  ", text)
    assert text.count("32.0 GiB / 80.0 GiB") == 2
