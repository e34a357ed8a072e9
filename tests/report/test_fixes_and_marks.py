"""Fixes with how they are applied, marks under what is meant, and long reports that repeat nothing."""

from __future__ import annotations

import json

import pytest
import samples
from msgspec.structs import replace
from rich.cells import cell_len

from gonogo.finding import Applicability, Edit, Finding, Fix, Report, Span, Text, UserError, Verdict
from gonogo.report import FORMATS, PAGE_FORMATS, check_page_format, render

EDITS = (Edit("ds.json", 4, 9, b"false", b"true\xff"),)


def check(*findings: Finding) -> Report:
    return Report(command="check", verdict=Verdict.NO_GO, findings=findings)


def marked(span: Span, language: str = "en") -> tuple[str, str]:
    """The line as it is shown, and the mark line below it."""
    lines = render(check(replace(samples.finding(), spans=(span,))), "text", language).splitlines()
    place = next(number for number, line in enumerate(lines) if "-->" in line)
    return lines[place + 2], lines[place + 3]


@pytest.mark.parametrize(
    ("span", "under"),
    [
        (Span("a.py", 3, 5, "x = call(a, b)", end_line=3, end_column=15), "call(a, b)"),
        (Span("a.py", 3, 5, "x = call(a, b)", end_column=9), "call"),
        (Span("a.py", 3, 1, "x = call(a, b)", end_line=3, end_column=2), "x"),
        (Span("a.py", 3, 5, "x = call(a,", end_line=4, end_column=3), "call(a,"),
        (Span("a.py", 3, 5, "x = call", end_line=3, end_column=99), "call"),
        (Span("a.py", 3, 5, "x = call", end_line=3, end_column=5), "c"),
        (Span("a.py", 3, 2, "\tx = 1", end_line=3, end_column=3), "x"),
        (Span("a.py", 3, 5, "x = call(a, b)"), "call"),
    ],
)
def test_the_mark_is_under_the_place_and_no_more(span: Span, under: str) -> None:
    source, mark = marked(span)
    start = mark.index("^")
    assert source[start : start + mark.count("^")] == under


def test_wide_characters_take_two_marks_each() -> None:
    source, mark = marked(Span("a.sh", 3, 6, "echo 训练 开始", end_line=3, end_column=8))
    assert mark.count("^") == 4
    assert cell_len(mark[: mark.index("^")]) == cell_len(source[: source.index("训练")])


def test_a_place_beyond_the_head_of_a_line_that_was_kept_has_no_mark() -> None:
    written = render(
        check(replace(samples.finding(), spans=(Span("a.json", 1, 900, "{" * 300, end_column=910),))), "text", "en"
    )
    assert "a.json:1:900" in written
    assert "^" not in written


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("format_name", ["text", "markdown"])
@pytest.mark.parametrize(
    ("applicability", "edits", "command"),
    [
        (Applicability.SAFE, EDITS, "gonogo check --fix"),
        (Applicability.UNSAFE, EDITS, "gonogo check --fix --unsafe-fixes"),
        (Applicability.MANUAL, EDITS, None),
        (Applicability.SAFE, (), None),
    ],
)
def test_a_fix_says_how_it_is_applied(
    format_name: str, applicability: Applicability, edits: tuple[Edit, ...], command: str | None, language: str
) -> None:
    fix = Fix(Text("say true", "改为 true"), applicability, "--- a/ds.json\n+++ b/ds.json\n-false\n+true\n", edits)
    written = render(check(replace(samples.finding(), fixes=(fix,))), format_name, language)
    assert fix.title.in_language(language) in written
    assert "-false\n" in written
    ends = [line.rstrip("`") for line in written.splitlines() if "gonogo check --fix" in line]
    how = [line for line in ends if not line.startswith(("next", "下一步"))]  # which names it in full
    assert [line.endswith(command or "") for line in how] == ([True] if command else [])


def test_json_has_the_edits_to_the_byte_and_the_ends_of_places() -> None:
    fix = Fix(Text("t", "t"), Applicability.UNSAFE, "", EDITS)
    span = Span("ds.json", 2, 3, end_line=2, end_column=8)
    document = json.loads(render(check(replace(samples.finding(), spans=(span,), fixes=(fix,))), "json", "en"))
    found = document["findings"][0]
    assert (found["spans"][0]["end_line"], found["spans"][0]["end_column"]) == (2, 8)
    written = found["fixes"][0]
    assert written["apply"] == "gonogo check --fix --unsafe-fixes"
    edit = written["edits"][0]
    assert (edit["path"], edit["start"], edit["end"]) == ("ds.json", 4, 9)
    assert edit["after"].encode("utf-8", "surrogateescape") == EDITS[0].after


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_long_report_tells_all_and_repeats_no_advice(language: str) -> None:
    found = samples.finding()
    findings = [
        replace(found, spans=(Span(f"{n}.py", n, 1, f"x{n}"),), cause=Text(f"cause-{n}", f"原因-{n}"))
        for n in range(1, 41)
    ]
    written = render(check(*findings), "text", language)
    for finding in findings:
        assert f"{finding.spans[0].path}:{finding.spans[0].line}" in written
        assert finding.cause.in_language(language) in written
    assert written.count(found.cure[0].in_language(language)) == 1
    assert written.count(found.sources[0]) == 1
    assert written.count("NO-GO") == 2  # the first line has gone out of sight


def test_advice_that_differs_is_told_each_time() -> None:
    other = replace(samples.finding(), cure=(Text("Another way.", "另一种办法。"),))
    written = render(check(samples.finding(), other), "text", "en")
    assert samples.finding().cure[0].en in written
    assert "Another way." in written


def test_pages_have_no_findings_to_annotate() -> None:
    assert all(check_page_format(name) == name for name in PAGE_FORMATS)
    for name in (*(set(FORMATS) - set(PAGE_FORMATS)), "yaml"):
        with pytest.raises(UserError, match=f"'{name}'.*text, json, markdown"):
            check_page_format(name)
