"""Every format says what the contract asks, in both languages, and nothing that a terminal would obey."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
import samples
import test_github
import test_sarif
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import (
    Applicability,
    Certainty,
    Edit,
    Finding,
    Fix,
    Report,
    Severity,
    Skipped,
    Span,
    Text,
    UserError,
    Verdict,
)
from gonogo.finding.log_answer import SimilarThread
from gonogo.finding.rehearsal import Assumption, ModuleBytes
from gonogo.rehearse.answer import rehearsal_report
from gonogo.report import FORMATS, PAGE_FORMATS, print_to, render
from gonogo.report.page import Page
from gonogo.report.table import short_place
from gonogo.report.text import print_report

RECORDS = sorted((Path(__file__).parent.parent / "hazards").glob("*/*.record.json"))
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
NASTY = st.text(
    alphabet=st.one_of(st.characters(), st.sampled_from("\x1b\x9b\x07[]m0;31\\/`|<>*_#\n\r\t\u202e\ud800\x00{}中"))
)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_format_names_verdict_cause_cure_place_and_source(format_name: str, language: str) -> None:
    found = samples.finding()
    written = render(samples.report(), format_name, language)
    for expected in (
        *([] if format_name == "junit" else ["NO-GO"]),
        found.hazard,
        found.cause.in_language(language).replace("[0]", ""),
        found.cure[0].in_language(language),
        "train.py",
        "41",
        *([] if format_name == "github" else [found.sources[0]]),
        *(["-loss = loss + dummy"] if format_name in PAGE_FORMATS else []),
    ):
        # Markdown escapes what it would obey, and the text's table wraps between words
        parts = re.split(r"[\[\]_]", expected)
        assert all(part.split(" ")[0] in written for part in parts), (expected, written)


def test_text_marks_the_token_at_the_column_and_aligns_wide_characters() -> None:
    lines = render(samples.report(), "text", "en").splitlines()
    primary = lines.index("  --> train.py:41:12")
    source, mark = lines[primary + 2], lines[primary + 3]
    start = mark.index("^")
    assert source[start : start + mark.count("^")] == "loss"
    wide = next(number for number, line in enumerate(lines) if "解码" in line)
    under = lines[wide + 1]
    assert cell_len(under[: under.rindex("-") + 1]) == cell_len(lines[wide])


def test_columns_of_a_table_line_up_in_chinese() -> None:
    lines = render(samples.report(), "text", "zh").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("GPU 显存峰值"))
    ends = {cell_len(line[: line.rindex("80.0 GiB") + len("80.0 GiB")]) for line in lines[first + 2 : first + 4]}
    header = lines[first + 1]
    assert ends == {cell_len(header[: header.index("总量") + 2])}


def test_eighty_columns_hold_the_memory_tables() -> None:
    buffer = io.StringIO()
    print_report(samples.report(), Page(buffer, width=80), "en")
    lines = buffer.getvalue().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("Peak GPU memory"))
    assert " ".join(lines[first + 1].split()) == "rank allocated reserved context capacity used free peak phase"
    assert lines[first + 2].split()[:3] == ["0", "20.0", "GiB"]
    assert max(cell_len(line) for line in lines[3:]) <= 80  # the answer's three lines are whole for who reads lines


def test_ranks_alike_share_a_row_and_ranks_apart_do_not() -> None:
    written = render(samples.report(), "text", "en")
    assert re.search(r"^0-1 +10\.0 GiB", written, re.MULTILINE)  # by category: alike
    assert re.search(r"^0 +20\.0 GiB.*raised$", written, re.MULTILINE)
    assert re.search(r"^1 +20\.0 GiB.*step 1\)$", written, re.MULTILINE)


def test_the_most_frequent_assumptions_are_shown_and_the_rest_counted() -> None:
    written = render(samples.report(), "text", "en")
    assert [line.split()[1] for line in written.splitlines() if line.startswith("assumption ")] == list("76543")
    assert "and 2 more" in written


def test_an_assumption_made_at_several_places_is_one_row() -> None:
    report = samples.report()
    assert report.rehearsal is not None
    assumed = [
        Assumption("Triton is installed", f"kernels.py:{line}", line, what_zh="已安装 Triton") for line in (3, 9, 5)
    ]
    ranks = tuple(
        replace(rank, assumptions=(*assumed, Assumption("finite", "loss.py:1", 1))) for rank in report.rehearsal.ranks
    )
    report = replace(report, rehearsal=replace(report.rehearsal, ranks=ranks))
    count = len(ranks)
    written = render(report, "text", "en")
    assert re.search(
        rf"^Triton is installed +kernels\.py:9 \(and 2 other places\) +{17 * count}$", written, re.MULTILINE
    )
    assert re.search(rf"^finite +loss\.py:1 +{count}$", written, re.MULTILINE)
    assert "kernels.py:9（另有 2 处）" in render(report, "text", "zh")


def test_a_place_in_an_installed_package_is_short_in_a_table_and_whole_in_json() -> None:
    report = samples.report()
    assert report.rehearsal is not None
    where = "/opt/a/long/way/to/lib/python3.11/site-packages/deepspeed/runtime/zero/stage3.py:1989"
    first, *others = report.rehearsal.ranks
    ranks = (replace(first, assumptions=(Assumption("finite", where, 99),)), *others)
    report = replace(report, rehearsal=replace(report.rehearsal, ranks=ranks))
    assert re.search(
        r"^finite +deepspeed/runtime/zero/stage3\.py:1989 +99$", render(report, "text", "en"), re.MULTILINE
    )
    assert json.loads(render(report, "json", "en"))["rehearsal"]["ranks"][0]["assumptions"][0]["where"] == where


def test_a_place_in_a_package_laid_over_the_installed_ones_is_short_too() -> None:
    overlay = "/home/user/.cache/gonogo/packages/transformer-engine-2.17.1-py3.11"
    assert short_place(f"{overlay}/transformer_engine/pytorch/attention/rope.py:142") == (
        "transformer_engine/pytorch/attention/rope.py:142"
    )


def test_json_has_every_key_of_the_contract() -> None:
    document = json.loads(render(samples.report(), "json", "en"))
    assert document["schema"] == "gonogo.report/1"
    assert document.keys() >= {"schema", "command", "verdict", "findings", "covered", "skipped", "rehearsal"}
    found = document["findings"][0]
    assert found.keys() >= {
        *("hazard", "certainty", "severity", "title", "cause", "cure", "spans", "rank", "module", "parameter"),
        *("fixes", "sources"),
    }
    assert found["rank"] == 0
    assert found["spans"][0].keys() >= {"path", "line", "column", "text"}
    assert found["fixes"][0].keys() >= {"title", "applicability", "diff"}
    assert document["skipped"][0].keys() >= {"what", "why"}
    rehearsal = document["rehearsal"]
    assert rehearsal.keys() >= {"world_size", "accelerator", "steps", "seconds", "ranks"}
    rank = rehearsal["ranks"][0]
    assert rank.keys() >= {
        *("rank", "device", "outcome", "peak_allocated_bytes", "peak_reserved_bytes", "host_peak_bytes"),
        *("peak_by_category", "collectives", "assumptions"),
    }
    categories = {"parameters", "gradients", "optimizer", "activations", "communication", "temporary"}
    assert rank["peak_by_category"].keys() == categories
    assert rank["collectives"].keys() >= {"count", "bytes"}
    assert rank["assumptions"][0].keys() >= {"what", "where", "count"}


def test_json_without_a_rehearsal_has_no_such_key_and_keeps_the_order_of_findings() -> None:
    report = replace(samples.report(), rehearsal=None)
    document = json.loads(render(report, "json", "zh"))
    assert "rehearsal" not in document
    assert [found["severity"] for found in document["findings"]] == ["error", "warning"]
    assert document["findings"][0]["title"] == "损失里直接对参数求和"


def test_an_unknown_format_names_those_there_are() -> None:
    with pytest.raises(UserError, match="text, json, markdown"):
        render(samples.report(), "yaml", "en")


def test_colour_only_on_a_terminal_and_never_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    pipe, terminal = io.StringIO(), Terminal()
    print_to(pipe, samples.report(), "text", "en")
    print_to(terminal, samples.report(), "text", "en")
    assert "\x1b[" not in pipe.getvalue()
    assert "\x1b[" in terminal.getvalue()
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    print_to(plain, samples.report(), "text", "en")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", plain.getvalue())


def _said(text: str) -> Text:
    return Text(text, text)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """Reports in which every text that may come from outside is hostile."""
    said = NASTY.map(_said)
    spans = st.builds(
        Span,
        path=NASTY,
        line=st.integers(0, 10**6),
        column=st.integers(0, 400),
        text=NASTY,
        label=st.none() | said,
        end_line=st.integers(0, 10**6),
        end_column=st.integers(0, 400),
    )
    edits = st.builds(
        Edit, path=NASTY, start=st.integers(0, 99), end=st.integers(99, 200), before=st.binary(), after=st.binary()
    )
    fixes = st.builds(
        Fix,
        title=said,
        applicability=st.sampled_from(Applicability),
        diff=NASTY,
        edits=st.lists(edits, max_size=2).map(tuple),
    )
    findings = st.builds(
        Finding,
        hazard=NASTY,
        certainty=st.sampled_from(Certainty),
        severity=st.sampled_from(Severity),
        title=said,
        cause=said,
        cure=st.lists(said, max_size=2).map(tuple),
        spans=st.lists(spans, max_size=2).map(tuple),
        ranks=st.lists(st.integers(0, 63), max_size=4).map(tuple),
        module=st.none() | NASTY,
        parameter=st.none() | NASTY,
        fixes=st.lists(fixes, max_size=2).map(tuple),
        sources=st.lists(NASTY, max_size=2).map(tuple),
    )
    rehearsal = samples.report().rehearsal
    assert rehearsal is not None
    rank, *others = rehearsal.ranks
    assert rank.failure is not None
    assert rank.failure.user_frame is not None
    failure = replace(
        rank.failure,
        message=draw(NASTY),
        module=draw(NASTY),
        user_frame=replace(rank.failure.user_frame, path=draw(NASTY)),
        operands=(replace(rank.failure.operands[0], parameter=draw(NASTY)),),
    )
    held = (ModuleBytes(draw(NASTY), draw(st.integers(0, 2**50))),)
    rank = replace(
        rank,
        failure=failure,
        assumptions=(Assumption(draw(NASTY), draw(NASTY), draw(st.integers(0, 10**9))),),
        devices=(replace(rank.devices[0], device=draw(NASTY), top_modules=held),),
    )
    rehearsal = replace(rehearsal, ranks=(rank, *others))
    return Report(
        command="rehearse",
        verdict=draw(st.sampled_from(Verdict)),
        findings=tuple(draw(st.lists(findings, max_size=2))),
        covered=(draw(said),),
        skipped=(Skipped(draw(said), draw(said)),),
        rehearsal=rehearsal,
        notes=(draw(said),),
        similar=tuple(
            draw(st.lists(st.builds(SimilarThread, NASTY, NASTY, st.none() | said, NASTY, st.floats(0, 1)), max_size=2))
        ),
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(report=reports(), language=st.sampled_from(["en", "zh"]))
def test_hostile_text_never_breaks_a_renderer_nor_reaches_the_terminal(report: Report, language: str) -> None:
    for format_name in FORMATS:
        written = render(report, format_name, language)
        assert not OBEYED.search(written), format_name
        written.encode()
    json.loads(render(report, "json", language))
    log = json.loads(render(report, "sarif", language))
    test_sarif.validator().validate(log)
    ElementTree.fromstring(render(report, "junit", language).encode())
    for line in render(report, "github", language).splitlines()[3:-1]:
        assert test_github.COMMAND.fullmatch(line), line


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(report=reports(), width=st.integers(20, 200))
def test_on_a_terminal_only_styles_of_our_own_are_left(report: Report, width: int) -> None:
    buffer = io.StringIO()
    print_report(report, Page(buffer, width=width, colour=True), "en")
    assert not OBEYED.search(re.sub(r"\x1b\[[0-9;]*m", "", buffer.getvalue()))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
def test_records_of_every_hazard_are_told_in_every_format(path: Path) -> None:
    report = rehearsal_report(msgspec.json.decode(path.read_bytes(), type=RehearsalRecord))
    for language in ("en", "zh"):
        text = render(report, "text", language)
        for found in report.findings:
            assert f"[{found.hazard}]" in text
            assert all(f"{span.path}:{span.line}" in text for span in found.spans)
        markdown = render(report, "markdown", language)
        assert all(f"`{found.hazard}`" in markdown for found in report.findings)
        document = json.loads(render(report, "json", language))
        assert [found["hazard"] for found in document["findings"]] == [found.hazard for found in report.findings]


def test_markup_in_untrusted_text_is_printed_as_it_stands() -> None:
    found = replace(samples.finding(), cause=_said("[red]x[/red] :smile: [link=file:///etc/passwd]y[/link]"))
    written = render(replace(samples.report(), findings=(found,)), "text", "en")
    assert "[red]x[/red] :smile: [link=file:///etc/passwd]y[/link]" in written


def test_markdown_cannot_be_broken_out_of() -> None:
    nasty = "``` </details> <script>alert(1)</script> | @someone"
    span = Span("train.py", 1, 1, f"x = 1  # {nasty}")
    found = replace(samples.finding(), cause=_said(nasty), spans=(span,), fixes=samples.finding().fixes)
    written = render(replace(samples.report(), findings=(found,)), "markdown", "en")
    outside_code = re.sub(r"(`+) ?.*?\1", "", written)
    assert "<script>" not in outside_code
    assert "@someone" not in outside_code.replace(r"\@", "")


def test_a_long_source_line_is_cut_so_that_the_mark_is_seen() -> None:
    text = "x = [" + "value, " * 60 + "culprit, " + "value, " * 60 + "]"
    span = Span("train.py", 3, text.index("culprit") + 1, text)
    report = replace(samples.report(), findings=(replace(samples.finding(), spans=(span,)),))
    lines = render(report, "text", "en").splitlines()
    place = lines.index(f" --> train.py:3:{span.column}")
    source, mark = lines[place + 2], lines[place + 3]
    assert source[mark.index("^") : mark.rindex("^") + 1] == "culprit"
    assert len(source) <= 100
