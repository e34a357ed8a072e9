"""``gonogo compare``: what is the same, better and worse, in every format; ``--against`` judges by the same logic."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gonogo.finding import Certainty, Finding, Report, Severity, Span, Text, UserError, Verdict
from gonogo.finding.rehearsal import Assumption, downsample_timeline
from gonogo.rehearse.baseline import compare_files, compare_with_baseline, read_baseline
from gonogo.report import FORMATS, render
from gonogo.report.html.curves import curve_data

sys.path.insert(0, str(Path(__file__).parent / "report"))
from pages import rehearsed_report as rehearsed
from whole_runs import RUNS

GIB = 1 << 30


def compared(tmp_path: Path, before: Report, after: Report, growth: float = 2.0) -> Report:
    for name, report in (("before", before), ("after", after)):
        (tmp_path / f"{name}.json").write_text(render(report, "json", "en"))
    return compare_files(tmp_path / "before.json", tmp_path / "after.json", growth)


@pytest.mark.parametrize(
    ("before", "after", "growth", "judged", "says"),
    [
        ({}, {}, 2, "same", "no peak differs by more than 2 %"),
        ({}, {"activations": 1.4}, 2, "regressed", "of ranks 0-1 grew from 40.0 GiB to 44.0 GiB (+10.0%"),
        ({}, {"activations": 1.4}, 12, "same", "no peak differs"),
        ({"activations": 1.4}, {}, 2, "better", "of ranks 0-1 fell from 44.0 GiB to 40.0 GiB (-9.1%"),
        ({}, {"verdict": Verdict.CANNOT_TELL}, 2, "regressed", "The verdict is CANNOT-TELL; it was GO"),
        ({"verdict": Verdict.NO_GO}, {}, 2, "better", "The verdict is GO; it was NO-GO"),
        # Better in one thing and worse in another is worse.
        ({"verdict": Verdict.NO_GO}, {"activations": 2.0}, 2, "regressed", "grew from 40.0 GiB to 50.0 GiB"),
        # A rank that died early took little memory: that is no improvement; and one that came further is no worse.
        ({"verdict": Verdict.NO_GO}, {"verdict": Verdict.NO_GO, "activations": 0.1, "outcome": "raised"}, 2, "same",
         "show only how far each got"),
        ({"verdict": Verdict.NO_GO, "activations": 0.1, "outcome": "raised"}, {}, 2, "better", "is GO; it was NO-GO"),
    ],
)  # fmt: skip
def test_what_is_judged(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], growth: float, judged: str, says: str
) -> None:
    report = compared(tmp_path, rehearsed(**before), rehearsed(**after), growth)
    assert report.comparison is not None
    assert report.comparison.judged == judged
    assert report.exit_status == (1 if judged == "regressed" else 0)
    first, second = render(report, "text", "en").splitlines()[:2]
    assert first.startswith(f" {judged.upper()} (")
    assert says in f"{second} {render(report, 'text', 'en')}".replace("\n", " ")
    for language in ("en", "zh"):
        for format_name in FORMATS:
            assert render(report, format_name, language)


def test_against_judges_alike_and_says_it_first(tmp_path: Path) -> None:
    now = rehearsed(1.4)
    (tmp_path / "before.json").write_text(render(rehearsed(), "json", "en"))
    (tmp_path / "after.json").write_text(render(now, "json", "en"))
    gate = compare_with_baseline(now, read_baseline(tmp_path / "before.json"), 2.0)
    alone = compare_files(tmp_path / "before.json", tmp_path / "after.json", 2.0)
    assert gate.comparison is not None
    assert alone.comparison is not None
    suggests_nothing = {"next_command": "", "next_does": "", "next_purpose": ""}
    same = msgspec.structs.replace(gate.comparison, after=alone.comparison.after, **suggests_nothing)
    assert same == msgspec.structs.replace(alone.comparison, **suggests_nothing)
    assert gate.exit_status == 1
    written = render(gate, "text", "en").splitlines()
    assert written[0].startswith(" REGRESSED (GO, but worse than before)")
    assert not any(line.startswith(" GO ") for line in written), "no green GO stands above exit status 1"
    page = render(gate, "html", "en")
    assert (
        page.index("Before and after")
        < page.index("Memory of both rehearsals over time")
        < page.index("Memory over time")
    )


def test_the_table_has_peaks_parts_speed_and_settings(tmp_path: Path) -> None:
    versions = {"torch": "2.12.0", "peft": "0.1"}
    before = rehearsed(rehearsal={"seconds_of_step": 2.0, "tokens_per_second_per_gpu": 4000.0})
    after = rehearsed(
        1.4, rehearsal={"seconds_of_step": 3.0, "tokens_per_second_per_gpu": 2000.0, "versions": versions, "steps": 3}
    )
    report = compared(tmp_path, before, after)
    assert report.comparison is not None
    rows = {one.what.en: (one.before.en, one.after.en, one.change.en) for one in report.comparison.changes}
    assert rows["activations, ranks 0-1"] == ("10.0 GiB", "14.0 GiB", "+4.0 GiB (+40.0%)")
    assert rows["parameters, ranks 0-1"] == ("20.0 GiB", "20.0 GiB", "")
    assert rows["time per step (estimate)"] == ("2 s", "3 s", "+50.0%")
    assert rows["tokens/s per GPU (estimate)"] == ("4,000", "2,000", "-50.0%")
    assert rows["torch"][1] == "2.12.0"
    assert rows["peft"] == ("-", "0.1", "")
    assert rows["steps rehearsed"][1] == "3"
    assert "command" not in rows


def test_a_growth_of_many_times_is_a_factor(tmp_path: Path) -> None:
    report = compared(tmp_path, rehearsed(0.1), rehearsed(1.4))
    assert report.comparison is not None
    rows = {one.what.en: one.change.en for one in report.comparison.changes}
    assert rows["activations, ranks 0-1"] == "+13.0 GiB (x14)"


def test_what_came_and_went(tmp_path: Path) -> None:
    def finding(hazard: str, line: int) -> Finding:
        title = Text(f"title of {hazard}", f"{hazard} 的标题")
        return Finding(
            hazard, Certainty.POSSIBLE, Severity.WARNING, title, title, spans=(Span("train.py", line, 1, "x"),)
        )

    before = rehearsed(rank={"assumptions": (Assumption("the loss is finite", "train.py:3"),)})
    before = msgspec.structs.replace(before, findings=(finding("moved", 3), finding("cured", 4)))
    after = msgspec.structs.replace(rehearsed(), findings=(finding("moved", 30), finding("fresh", 5)))
    after = msgspec.structs.replace(after, covered=(*after.covered, Text("saving", "保存")))
    report = compared(tmp_path, before, after)
    said = json.loads(render(report, "json", "en"))["comparison"]
    assert said["findings"] == {"new": ["title of fresh (fresh)"], "gone": ["title of cured (cured)"]}
    assert said["assumptions"]["gone"] == ["the loss is finite (train.py:3)"]
    assert said["covered"] == {"new": ["saving"], "gone": []}
    assert re.search(r"new +finding +title of fresh", render(report, "text", "en"))


def test_reports_in_two_languages_are_not_all_new(tmp_path: Path) -> None:
    (tmp_path / "before.json").write_text(render(rehearsed(), "json", "zh"))
    gate = compare_with_baseline(rehearsed(), read_baseline(tmp_path / "before.json"), 2.0)
    assert gate.comparison is not None
    assert gate.comparison.differences == ()
    (tmp_path / "after.json").write_text(render(rehearsed(), "json", "en"))
    both = compare_files(tmp_path / "before.json", tmp_path / "after.json", 2.0).comparison
    assert both is not None
    assert both.differences == ()


def test_curves_keep_their_peaks_and_lie_phase_upon_phase(tmp_path: Path) -> None:
    line = rehearsed().rehearsal.ranks[0].timelines[0]  # type: ignore[union-attr]
    curve = downsample_timeline(line)
    totals = [sum(column) for column in zip(*curve.held_mib.values(), strict=True)]
    assert len(totals) <= 256
    assert max(totals) == max(map(sum, zip(*line.by_category.values(), strict=True))) >> 20
    found = compared(tmp_path, rehearsed(), rehearsed(1.4)).comparison
    assert found is not None
    pair = found.curves[0]
    # One that rolls out first, and then makes its first phase in half as many allocations.
    (phase, step, first, last), *rest = pair.after.phases
    phases = [("generate", 0, 0, 0), (phase, step, first + 1, last), *rest]
    odd = msgspec.structs.replace(
        found, curves=(msgspec.structs.replace(pair, after=msgspec.structs.replace(pair.after, phases=phases)),)
    )
    (drawn,) = curve_data(odd)["pairs"]
    names = [(name, step) for name, step, _, _ in drawn["phases"]]
    assert names == [("generate", 0), *[run[:2] for run in pair.before.phases]]
    assert drawn["before"]["parameters"][0] is None
    assert drawn["after"]["parameters"][0] is not None
    assert [first for _, _, first, _ in drawn["phases"][1:]] == [last + 1 for _, _, _, last in drawn["phases"][:-1]]
    assert {len(column) for side in ("before", "after") for column in drawn[side].values()} == {names and
        drawn["phases"][-1][3] + 1}  # fmt: skip


def test_a_list_of_figures_takes_one_line_and_json_is_json() -> None:
    report = rehearsed()
    text = render(report, "json", "en")
    curve = json.loads(text)["rehearsal"]["ranks"][0]["memory_over_time"][0]
    assert curve == msgspec.to_builtins(downsample_timeline(report.rehearsal.ranks[0].timelines[0])) | {  # type: ignore[union-attr]
        "phases": [list(run) for run in curve["phases"]]
    }
    assert sum(len(line) > 500 for line in text.splitlines()) >= 3


@pytest.mark.parametrize("language", ["en", "zh"])
def test_bad_input_is_one_line(tmp_path: Path, language: str) -> None:
    (tmp_path / "check.json").write_text(render(RUNS["check"](), "json", "en"))
    (tmp_path / "a.json").write_text(render(rehearsed(), "json", "en"))
    for other in ("check.json", "none.json"):
        words = [sys.executable, "-m", "gonogo", "compare", "a.json", other, "--lang", language]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert other in done.stderr
    with pytest.raises(UserError, match=r"check\.json: not a rehearsal report"):
        read_baseline(tmp_path / "check.json", "")


def test_the_command_exits_with_what_it_says(tmp_path: Path) -> None:
    for name, activations in (("a", 1.0), ("b", 2.0)):
        (tmp_path / f"{name}.json").write_text(render(rehearsed(activations), "json", "en"))
    for words, status in ((["a.json", "b.json"], 1), (["b.json", "a.json"], 0), (["a.json", "a.json"], 0)):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "gonogo", "compare", *words, "--lang", "en"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == status
        assert done.stdout.split()[0] == {1: "REGRESSED", 0: "SAME" if words[0] == words[1] else "BETTER"}[status]
        assert " torch" not in done.stderr, "it starts fast"


def test_pages_are_compared_as_their_json_is(tmp_path: Path) -> None:
    for name, report in (("a", rehearsed()), ("b", rehearsed(1.4))):
        for format_name in ("json", "html"):
            (tmp_path / f"{name}.{format_name}").write_text(render(report, format_name, "en"))
    found = [
        compare_files(tmp_path / f"a.{ending}", tmp_path / f"b.{ending}", 2.0).comparison for ending in ("json", "html")
    ]
    assert found[0] is not None
    assert found[1] is not None
    assert found[1].changes == found[0].changes
    assert found[1].curves == found[0].curves
