"""A plan says how it orders strategies whose speeds can't be told apart, and which of them is the fastest."""

from __future__ import annotations

import msgspec
import pytest
from whole_runs import RUNS

from gonogo.finding import Report
from gonogo.finding.trials.planned import MemoryAtLength
from gonogo.report import render

SAID = {"en": "are listed simplest first", "zh": "简单的在前"}


def planned(speeds: list[float], solve: str = "") -> Report:
    """A plan whose first strategies have the given speeds, in this order."""
    report = RUNS["plan"]()
    assert report.plan is not None
    fitting = tuple(
        msgspec.structs.replace(choice, tokens_per_second_per_gpu=speed)
        for choice, speed in zip(report.plan.fitting, speeds, strict=False)
    )
    return msgspec.structs.replace(report, plan=msgspec.structs.replace(report.plan, fitting=fitting, solve=solve))


@pytest.mark.parametrize("language", SAID)
def test_a_faster_strategy_below_a_slower_one_is_explained(language: str) -> None:
    told = render(planned([3319.0, 3366.0, 3105.0]), "text", language)
    assert SAID[language] in " ".join(told.split())
    assert "5%" in told


def test_a_first_strategy_that_is_not_the_fastest_is_not_called_so() -> None:
    assert "First choice of 3 strategies that fit: " in render(planned([3319.0, 3366.0, 3105.0]), "text", "en")
    assert "Fastest of 3 strategies that fit: " in render(planned([3366.0, 3319.0, 3105.0]), "text", "en")


def test_a_list_by_speed_alone_needs_no_explanation() -> None:
    assert SAID["en"] not in render(planned([3366.0, 3319.0, 3105.0]), "text", "en")


def test_other_lengths_are_a_table_with_each_strategy_named_once() -> None:
    report = planned([3319.0])
    assert report.plan is not None
    at = tuple(
        MemoryAtLength("ZeRO-3", 2, length, length << 20, length << 21, 0.12, length < 9000) for length in (4096, 16384)
    )
    plan = msgspec.structs.replace(report.plan, memory_at=at)
    lines = render(msgspec.structs.replace(report, plan=plan), "text", "en").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("GPU memory at other sequence lengths"))
    assert [line.split() for line in lines[start + 1 : start + 4]] == [
        ["strategy", "micro-batch", "tokens", "GPU", "memory", "fits"],
        ["ZeRO-3", "2", "4,096", "8.0", "GiB", "±", "12%", "yes"],
        ["2", "16,384", "32.0", "GiB", "±", "12%", "no"],
    ]


def test_the_page_draws_memory_over_lengths() -> None:
    report = RUNS["plan"]()
    assert report.plan is not None
    lengths = {4096: True, 8192: True, 16384: False}
    at = tuple(MemoryAtLength("ZeRO-3", 2, n, n << 20, n << 21, 0.12, fits) for n, fits in lengths.items())
    for shown, points in ((at, (2, 1)), (at[:1], (0, 0))):
        plan = msgspec.structs.replace(report.plan, memory_at=shown)
        page = render(msgspec.structs.replace(report, plan=plan), "html", "en")
        title = "<h2>GPU memory over the sequence length</h2>"
        _, _, section = page.partition(title)
        assert bool(section) == bool(points[0])
        section = section.partition("</section>")[0]
        assert (section.count('class="fits"'), section.count('class="too-large"')) == points
