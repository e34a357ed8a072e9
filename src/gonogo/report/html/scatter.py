"""A plan as a scatter plot, memory against speed of each strategy; a point links to its config and launch command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gonogo.finding import translated
from gonogo.finding.trials.planned import Plan, StrategySummary
from gonogo.finding.words import size
from gonogo.report.html.finding_markup import copyable
from gonogo.report.html.markup import element, escape_line, heading
from gonogo.report.html.plot import line_element, memory_axes, round_ticks, text_element
from gonogo.report.trials.plan import strategy_name
from gonogo.report.words import colon

_TITLE = translated("Memory against speed")
_SCATTER_LEGEND = translated(
    "Further right is faster, higher takes more memory; the error bars show the uncertainty of the "
    "memory estimate. Select a point to see its config and launch command. Hollow: does not fit."
)
_WRITE_FILES_REMARK = translated("gonogo plan --write DIR writes these and all other files of the best strategy.")
_SPEED = translated("tokens/s/GPU")
_GPU_MEMORY_LABEL = translated("GPU memory")
_CAPACITY = translated("capacity {size}")
_ALL_STRATEGIES = translated("All strategies")
_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE = 760, 380, 76, 44, 16
_POINT_RADIUS = 9
_MIN_POINT_DISTANCE = 2 * 13  # twice the radius with which points are drawn on a phone
_MAX_CAPACITY_SHARE = 1.5
"""Strategies that need more than this share of the accelerator's memory are left out of the plot."""


class _Scales(NamedTuple):
    """The plot's scales: ``slowest`` and ``fastest`` in tokens per second, ``top`` in bytes."""

    slowest: float
    fastest: float
    top: float

    def x(self, tokens_per_second: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 40) * (tokens_per_second - self.slowest) / (self.fastest - self.slowest)

    def y(self, nbytes: float) -> float:
        return _HEIGHT - _BELOW - (_HEIGHT - _BELOW - _ABOVE) * nbytes / self.top


def scatter_section(plan: Plan, language: str) -> Iterator[str]:
    """The plot and the config behind each point; nothing if no strategy fits."""
    if not plan.fitting or not plan.capacity_bytes:
        return
    title = _TITLE.in_language(language)
    yield element(
        "section", heading(2, title),
        element("div", _scatter_markup(plan, language, title), klass="scatter wide", tabindex="0", role="group",
                aria_label=title),
        element("p", escape_line(_SCATTER_LEGEND.in_language(language)), klass="remark"),
    )  # fmt: skip
    if plan.files:
        choices = (_strategy_details(plan, number, language) for number in range(len(plan.files)))
        remark = element("p", escape_line(_WRITE_FILES_REMARK.in_language(language)), klass="remark")
        yield element("section", heading(2, _ALL_STRATEGIES.in_language(language)), *choices, remark)


def _scatter_markup(plan: Plan, language: str, title: str) -> str:
    hollow = [one for one in plan.too_large if one.reserved_bytes <= _MAX_CAPACITY_SHARE * plan.capacity_bytes]
    speeds = [one.tokens_per_second_per_gpu for one in (*plan.fitting, *hollow)]
    fastest = max(speeds) or 1.0
    # The plot is to separate the strategies from each other; the axis starts at 0 only if 0 is close to them.
    spread = max(fastest - min(speeds), fastest / 10)
    slowest = max(0.0, min(speeds) - spread / 6)
    top = max(plan.capacity_bytes, *(one.reserved_bytes * (1 + one.band) for one in (*plan.fitting, *hollow))) * 1.05

    scales = _Scales(slowest, fastest, top)
    places = _separate_points(plan.fitting, scales)
    marks = [
        *_axes_markup(plan, language, scales),
        *(_error_bar(one, scales.x(one.tokens_per_second_per_gpu), scales) for one in hollow),  # bars below points
        *(_error_bar(one, across, scales) for one, across in zip(plan.fitting, places, strict=True)),
        *(_point_markup(one, 0, scales.x(one.tokens_per_second_per_gpu), language, scales) for one in hollow),
        *(_point_markup(one, number, across, language, scales, bool(plan.files))
          for number, (one, across) in enumerate(zip(plan.fitting, places, strict=True), 1)),
    ]  # fmt: skip
    # role="group", because screen readers ignore links inside an image.
    return element("svg", *marks, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="group", aria_label=title)


def _axes_markup(plan: Plan, language: str, scales: _Scales) -> Iterator[str]:
    bottom, line = scales.y(0), scales.y(plan.capacity_bytes)
    speeds = round_ticks(scales.slowest, scales.fastest)
    yield from memory_axes(
        scales.x, scales.y, speeds, top=scales.top, capacity=plan.capacity_bytes, corners=(_LEFT, _WIDTH, _ABOVE)
    )
    capacity = _CAPACITY.format(size=size(plan.capacity_bytes)).in_language(language)
    yield text_element(_WIDTH - 4, line - 5, capacity, "end")
    yield text_element(_WIDTH - 4, bottom + 34, _SPEED.in_language(language), "end")
    yield text_element(_LEFT + 6, _ABOVE + 4, _GPU_MEMORY_LABEL.in_language(language), "start")


def _separate_points(choices: Sequence[StrategySummary], scales: _Scales) -> list[float]:
    """The x coordinate of each point: a point that would hide another is moved beside it."""
    taken: list[tuple[float, float]] = []
    for choice in choices:
        across, up = scales.x(choice.tokens_per_second_per_gpu), scales.y(choice.reserved_bytes)
        while any(abs(across - x) < _MIN_POINT_DISTANCE and abs(up - y) < _MIN_POINT_DISTANCE for x, y in taken):
            across += _MIN_POINT_DISTANCE + 1
        taken.append((across, up))
    return [across for across, _ in taken]


def _point_markup(
    choice: StrategySummary, number: int, x: float, language: str, scales: _Scales, with_link: bool = False
) -> str:
    up = scales.y(choice.reserved_bytes)
    parts = [
        element("title", escape_line(_tooltip_text(choice, language))),
        element("circle", cx=f"{x:.1f}", cy=f"{up:.1f}", r=str(_POINT_RADIUS), klass="fits" if number else "too-large"),
    ]
    if number:
        parts.append(text_element(x, up + 4, str(number), "middle"))
    if with_link:
        return element("a", *parts, href=f"#strategy-{number}-{language}", aria_label=_tooltip_text(choice, language))
    return element("g", *parts)


def _error_bar(choice: StrategySummary, x: float, scales: _Scales) -> str:
    """The range within which the strategy's real memory may lie."""
    spread = choice.reserved_bytes * choice.band
    high, low = scales.y(choice.reserved_bytes + spread), scales.y(choice.reserved_bytes - spread)
    return line_element(x, high, x, low, "band")


def _tooltip_text(choice: StrategySummary, language: str) -> str:
    speed = f"{choice.tokens_per_second_per_gpu:,.0f} {_SPEED.in_language(language)}"
    return f"{strategy_name(choice, language)}{colon(language)}{size(choice.reserved_bytes)}, {speed}"


def _strategy_details(plan: Plan, number: int, language: str) -> str:
    choice = plan.fitting[number]
    files = [
        element("div", heading(3, name), copyable(content, name, language)) for name, content in plan.files[number]
    ]
    summary = element("summary", escape_line(f"{number + 1}. {_tooltip_text(choice, language)}"))
    return element("details", summary, *files, id=f"strategy-{number + 1}-{language}")
