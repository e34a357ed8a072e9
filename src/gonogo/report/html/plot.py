"""Elements of the plots that need no script: lines, labels, round numbers on an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from gonogo.report.html.markup import element, escape_line

Scale = Callable[[float], float]
"""From a value to a coordinate."""
_GIB = 1 << 30


def memory_axes(
    x: Scale, y: Scale, ticks: Sequence[float], *, top: float, capacity: float, corners: tuple[float, float, float]
) -> Iterator[str]:
    """The axes of memory over something else, with the accelerator's capacity as a line.

    ``ticks``: the values that are named on the x axis; ``top``: bytes at the top of the y axis; ``corners``: the
    plot's left, right and upper coordinate.
    """
    left, right, above = corners
    bottom, line = y(0), y(capacity)
    yield line_element(left, bottom, right, bottom, "axis")
    yield line_element(left, bottom, left, above, "axis")
    yield line_element(left, line, right, line, "limit")
    for tick in round_ticks(0, top / _GIB):
        yield text_element(left - 6, y(tick * _GIB) + 4, f"{tick:g} GiB", "end")
    for tick in ticks:
        yield text_element(x(tick), bottom + 16, f"{tick:,g}", "middle")


def round_ticks(minimum: float, maximum: float) -> list[float]:
    """About five round numbers above ``minimum`` and up to ``maximum``."""
    rough = (maximum - minimum) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    return [step * number for number in range(int(minimum / step) + 1, int(maximum / step + 1e-9) + 1)]


def line_element(x1: float, y1: float, x2: float, y2: float, css_class: str) -> str:
    """A line; ``css_class``: ``axis``, ``limit`` or ``band``."""
    return element("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", klass=css_class)


def text_element(x: float, y: float, content: str, anchor: str) -> str:
    """A label; ``anchor``: ``start``, ``middle`` or ``end``."""
    return element("text", escape_line(content), x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)
