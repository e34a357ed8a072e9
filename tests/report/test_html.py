"""The HTML page as text: what may run in it, what is shown of what comes from outside, and that nothing is left out."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import webbrowser
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pages import HOSTILE, PEAK, charted_report, died_report, guarded_report, hostile_report, parted_report
from whole_runs import RUNS

from gonogo.finding.logs import RankEnd
from gonogo.report import render
from gonogo.report.html.ends import time_axis
from gonogo.report.html.markup import format_sentence
from gonogo.report.output import show_in_browser


class Page(HTMLParser):
    """Elements with their attributes, and the text of each element that holds some."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, "elements are closed in order"

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self._open[-1], data))


@pytest.mark.parametrize("name", RUNS)
def test_only_its_own_script_and_style_may_run(name: str) -> None:
    page = Page(render(RUNS[name](), "html", "en"))
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy") or ""
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    styles = [content for tag, content in page.texts if tag == "style"]
    scripts = [content for tag, content in page.texts if tag == "script"]
    assert len(styles) == 1
    for content in (styles[0], scripts[-1]):
        hashed = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"'sha256-{hashed}'" in policy
    names = {name for _, attributes in page.elements for name in attributes}
    assert not {one for one in names if one in ("style", "src", "srcset") or one.startswith("on")}


@pytest.mark.parametrize("name", RUNS)
def test_both_languages_say_what_the_text_report_says(name: str) -> None:
    report = RUNS[name]()
    page = Page(render(report, "html", "zh"))
    shown = " ".join(content for tag, content in page.texts if tag not in ("script", "style"))
    for finding in report.findings:
        assert shown.count(finding.hazard) >= 2
    assert shown.count(f"gonogo {report.command}") >= 2
    tongues = [attributes for _, attributes in page.elements if attributes.get("class") == "tongue"]
    assert [(one["lang"], "hidden" in one) for one in tongues] == [("en", True), ("zh", False)]


@pytest.mark.slow
def test_text_from_outside_stays_text_and_short() -> None:
    markup = render(hostile_report(), "html", "en")
    page = Page(markup)
    assert len(markup) < 500_000
    assert [tag for tag, _ in page.elements].count("script") == 3  # two of them are data
    assert "img" not in {tag for tag, _ in page.elements}
    assert "\x1b" not in markup
    assert "\u202e" not in markup
    assert {a["href"] for tag, a in page.elements if tag == "a"} == {
        'https://example.org/"onclick="</script><script>alert(1)</script><img src=x onerror=alert(2)>'
    }


@pytest.mark.slow
def test_the_charts_data_is_whole_and_can_not_end_its_element() -> None:
    markup = render(charted_report(), "html", "en")
    assert len(markup) < 500_000
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', markup, re.S)
    assert found is not None
    assert not set("<>&") & set(found[1])
    data = json.loads(found[1])
    assert [len(one) for one in data["modules"]["lists"]] == [4, 1]
    assert data["modules"]["of"] == [0, 0, 1, 1]
    for timeline in data["timelines"]:
        points = [sum(point) for point in zip(*timeline["held"].values(), strict=True)]
        assert len(points) <= 512
        assert max(points) == PEAK
        assert timeline["phases"][-1][3] == len(points) - 1
    assert HOSTILE not in render(hostile_report(), "html", "zh")


def test_ranks_stand_side_by_side_where_they_part() -> None:
    report = parted_report()
    page = Page(render(report, "html", "en"))
    assert report.rehearsal is not None
    divergence = report.rehearsal.divergence
    assert divergence is not None
    lanes = [attributes for tag, attributes in page.elements if attributes.get("class") == "apart"]
    assert len(lanes) == 2 * sum(len(side.ranks) for side in divergence.sides)
    shown = " ".join(content for _, content in page.texts)
    for side in divergence.sides:
        for frame in side.call.frames if side.call is not None else ():
            assert f":{frame.line} {frame.function}" in shown


def test_a_plan_has_each_strategys_files_behind_its_point() -> None:
    report = RUNS["plan"]()
    page = Page(render(report, "html", "en"))
    assert report.plan is not None
    leads = {a["href"] for tag, a in page.elements if tag == "a" and (a["href"] or "").startswith("#strategy-")}
    folded = {f"#{a['id']}" for tag, a in page.elements if tag == "details" and "id" in a}
    assert leads == folded
    assert len(leads) == 2 * len(report.plan.fitting)
    configs = [json.loads(text) for _, text in page.texts if text.startswith("{\n")]
    assert len(configs) == len(leads)
    assert '"files"' not in render(report, "json", "en")


def test_a_log_is_shown_around_its_decisive_line_and_ranks_in_their_order(tmp_path: Path) -> None:
    report = died_report(tmp_path)
    assert report.log is not None
    assert [(end.rank, end.by_itself) for end in report.log.ends] == [(2, True), (0, False), (1, False), (3, False)]
    (excerpt, *_) = report.log.excerpts
    assert [line.decisive for line in excerpt.lines] == [False, False, False, True]
    page = Page(render(report, "html", "en"))
    assert [text for tag, text in page.texts if tag == "text"][1:3] == ["rank 2", "+0.00 s OutOfMemoryError"]
    assert not {"excerpts", "ends"} & json.loads(render(report, "json", "en"))["log"].keys()


def test_of_many_ranks_it_is_said_how_many_are_shown_in_order() -> None:
    ends = [RankEnd(rank, float(rank), not rank, "Error") for rank in range(512)]
    (shown,) = time_axis(ends, "en")
    assert shown.count("<circle") == 64
    assert "Showing the first 64 of 512." in shown
    (few,) = time_axis(ends[:64], "zh")
    assert "只显示" not in few


@pytest.mark.parametrize("words", [[], ["--format", "html"], ["--format", "html", "--output", "page.html"]])
def test_open_shows_the_page(words: list[str], tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\nprintf %s "$1" > "$SEEN"\n')
    browser.chmod(0o755)
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1}')
    environment = {**os.environ, "BROWSER": f"{browser} %s", "SEEN": str(tmp_path / "seen"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "gonogo", "check", "--open", *words, "ds.json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = Path((tmp_path / "seen").read_text().removeprefix("file://"))
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert str(page.name) in done.stderr
    assert ("GO" in done.stdout) is not bool(words)


def test_open_without_a_browser_says_where_the_page_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with contextlib.redirect_stderr(io.StringIO()) as said:
        show_in_browser(RUNS["check"](), None, "zh")
    (page,) = tmp_path.glob("gonogo-*/report.html")
    assert f"请在有浏览器的机器上打开 {page}" in said.getvalue()


def test_the_steps_of_a_guarded_run_keep_their_peaks_in_few_points() -> None:
    report = guarded_report()
    assert report.guarded_run is not None
    drawn = report.guarded_run.over_time
    assert drawn is not None
    assert (drawn.width, [len(rank.seconds) for rank in drawn.ranks]) == (5, [400] * 4)
    assert max(value or 0 for value in drawn.ranks[2].seconds) == 9.0
    assert max(value or 0 for value in drawn.ranks[3].gpu_bytes) == 47 << 30
    assert "over_time" not in json.loads(render(report, "json", "en"))["guarded_run"]
    texts = [text for _, text in Page(render(report, "html", "zh")).texts]
    assert "torchrun --nproc_per_node 4 train.py" in texts


def test_what_stands_between_backquotes_is_code() -> None:
    texts = Page(render(RUNS["check"](), "html", "en")).texts
    assert ("code", "sum(p.sum() for p in model.group_decode_adapter.parameters())") in texts
    assert format_sentence("one ` alone <b>") == "one ` alone &lt;b&gt;"
    assert format_sentence("`<b>` is") == "<code>&lt;b&gt;</code> is"
