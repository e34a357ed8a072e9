"""GPU memory of a plan's strategies over the sequence length: ``gonogo plan --memory-at``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise

from gonogo.finding import translated
from gonogo.finding.trials.planned import MemoryAtLength, Plan
from gonogo.finding.words import size
from gonogo.report.html.markup import element, escape_line, heading
from gonogo.report.html.plot import line_element, memory_axes, round_ticks, text_element
from gonogo.report.trials.plan import strategy_name
from gonogo.report.words import colon

_TITLE = translated("GPU memory over the sequence length")
_LEGEND = translated(
    "Each line is a strategy with its micro-batch unchanged; the error bars show the uncertainty of the memory "
    "estimate. Hollow: does not fit."
)
_TOKENS = translated("tokens per sample")
_CAPACITY = translated("capacity {size}")
_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE, _RIGHT = 760, 340, 76, 44, 16, 40
_POINT_RADIUS = 9


def lengths_section(plan: Plan, language: str) -> Iterator[str]:
    """The plot and its legend; nothing if memory is known at fewer than two lengths."""
    if len({at.seq_len for at in plan.memory_at}) < 2 or not plan.capacity_bytes:
        return
    title = _TITLE.in_language(language)
    strategies = [list(some) for _, some in groupby(plan.memory_at, key=lambda at: at.strategy)]
    names = (element("li", escape_line(strategy_name(some[0], language))) for some in strategies)
    yield element(
        "section",
        heading(2, title),
        element("div", _plot(plan, strategies, title, language), klass="scatter wide", tabindex="0", role="group",
                aria_label=title),
        element("ol", *names),
        element("p", escape_line(_LEGEND.in_language(language)), klass="remark"),
    )  # fmt: skip


def _plot(plan: Plan, strategies: list[list[MemoryAtLength]], title: str, language: str) -> str:
    top = max(plan.capacity_bytes, *(at.reserved_bytes * (1 + at.band) for at in plan.memory_at)) * 1.05
    longest = max(at.seq_len for at in plan.memory_at)

    def x(tokens: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * tokens / longest

    def y(nbytes: float) -> float:
        return _HEIGHT - _BELOW - (_HEIGHT - _BELOW - _ABOVE) * nbytes / top

    bottom, limit = y(0), y(plan.capacity_bytes)
    capacity = _CAPACITY.format(size=size(plan.capacity_bytes)).in_language(language)
    corners = (_LEFT, _WIDTH, _ABOVE)
    marks = [
        *memory_axes(x, y, round_ticks(0, longest), top=top, capacity=plan.capacity_bytes, corners=corners),
        text_element(_LEFT + 6, limit - 5, capacity, "start"),
        text_element(_WIDTH - 4, bottom + 34, _TOKENS.in_language(language), "end"),
    ]
    for some in strategies:
        for before, after in pairwise(some):
            ends = (x(before.seq_len), y(before.reserved_bytes), x(after.seq_len), y(after.reserved_bytes))
            marks.append(line_element(*ends, "axis"))
        for at in some:
            spread = at.reserved_bytes * at.band
            across = x(at.seq_len)
            marks.append(
                line_element(across, y(at.reserved_bytes + spread), across, y(at.reserved_bytes - spread), "band")
            )
    for number, some in enumerate(strategies, 1):
        marks += [_point(at, number, x(at.seq_len), y(at.reserved_bytes), language) for at in some]
    return element("svg", *marks, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="group", aria_label=title)


def _point(at: MemoryAtLength, number: int, across: float, up: float, language: str) -> str:
    tokens = f"{at.seq_len:,} {_TOKENS.in_language(language)}"
    said = f"{strategy_name(at, language)}{colon(language)}{tokens}, {size(at.reserved_bytes)}"
    return element(
        "g",
        element("title", escape_line(said)),
        element("circle", cx=f"{across:.1f}", cy=f"{up:.1f}", r=str(_POINT_RADIUS),
                klass="fits" if at.fits else "too-large"),
        text_element(across, up + 4, str(number), "middle") if at.fits else "",
    )  # fmt: skip
