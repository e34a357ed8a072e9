"""Every report answers first: the verdict, then the reason, then the next command, each on one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pages import compared_report, parted_report, rehearsed_report
from whole_runs import CALLS, RUNS

from gonogo.finding import Report
from gonogo.finding.call import Invocation
from gonogo.report import render
from gonogo.report.answer.headline import badge, headline_of
from gonogo.report.answer.invoked import called

OWN = {"compare": compared_report, "parted": lambda _: parted_report(), "go": lambda _: rehearsed_report()}
COMMAND = Invocation(("bash", "launch.sh"), ("--gpus", "8xH100-80G"))


def made(name: str, folder: Path) -> Report:
    report = OWN[name](folder) if name in OWN else RUNS[name]()
    return called(report, CALLS.get(name, COMMAND)) if report.call is None else report


def plain(line: str) -> str:
    return re.sub(r"[*`\\_]|^#+ ", "", line)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", [*RUNS, *OWN])
def test_verdict_reason_and_next_command_are_the_first_three_lines(name: str, language: str, tmp_path: Path) -> None:
    report = made(name, tmp_path)
    answer = headline_of(report)
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
