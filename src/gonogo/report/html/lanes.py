"""Ranks side by side: their last collectives as lanes, with the one at which they diverge, and both sides' stacks."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.finding import translated
from gonogo.finding.divergence import CollectiveCall, Divergence, Side
from gonogo.finding.ranks import ranks_text
from gonogo.finding.words import PHASE_NAMES
from gonogo.report.html.markup import element, escape_line, escape_lines, heading
from gonogo.report.table import short_place
from gonogo.report.untrusted import clean_line

_TITLE = translated("Ranks side by side")
_LANES_LEGEND = translated(
    "Each lane shows the last collectives of a rank, the latest on the right; the first one that differs "
    "between ranks is marked. Below: the call stacks of each side."
)
_ENDED_LABEL = translated("has ended")
_CALL_NUMBER = translated("call number {number} in its group")
_MAX_LANES = 16
"""If one side has more ranks than this, they share a lane."""


def lanes_section(divergence: Divergence, language: str) -> str:
    """The section about ranks that diverge."""
    rows = sorted(_rank_lanes(divergence), key=lambda row: row[0])
    width = max(len(side.before) for _, side in rows)
    drawn = element("table", element("tbody", *(_lane_markup(ranks, side, width, language) for ranks, side in rows)),
                    klass="lanes")  # fmt: skip
    title = _TITLE.in_language(language)
    return element(
        "section", heading(2, title), element("p", escape_line(_LANES_LEGEND.in_language(language)), klass="remark"),
        element("div", drawn, klass="wide", tabindex="0", role="group", aria_label=title),
        element("div", *(_stack_markup(side, language) for side in divergence.sides), klass="stacks"),
    )  # fmt: skip


def _rank_lanes(divergence: Divergence) -> Iterator[tuple[tuple[int, ...], Side]]:
    apart = sum(len(side.ranks) for side in divergence.sides) <= _MAX_LANES
    for side in divergence.sides:
        if apart:
            yield from (((rank,), side) for rank in side.ranks)
        else:
            yield side.ranks, side


def _lane_markup(ranks: tuple[int, ...], side: Side, width: int, language: str) -> str:
    name = element("th", escape_line(ranks_text(ranks).in_language(language)), scope="row")
    cells = [element("td")] * (width - len(side.before)) + [_call_cell(call, "call", language) for call in side.before]
    if side.call is None:
        cells.append(element("td", element("strong", escape_line(_ENDED_LABEL.in_language(language))), klass="apart"))
    else:
        cells.append(_call_cell(side.call, "apart", language))
    return element("tr", name, *cells)


def _call_cell(call: CollectiveCall, css_class: str, language: str) -> str:
    name = escape_line(call.operator)
    lines = [_CALL_NUMBER.format(number=call.index + 1).in_language(language)]
    if call.module:
        lines.append(clean_line(call.module))
    marked = element("strong", name) if css_class == "apart" else name
    return element("td", marked, element("small", escape_line(", ".join(lines))), klass=css_class)


def _stack_markup(side: Side, language: str) -> str:
    ranks = ranks_text(side.ranks).in_language(language)
    if side.call is None:
        text = f"{ranks}: {_ENDED_LABEL.in_language(language)}"
        return element("div", heading(3, text))
    call = side.call
    phase = PHASE_NAMES.get(call.phase)
    when = phase.in_language(language) if phase is not None else call.phase
    shown = []
    for frame in call.frames:
        place = escape_lines(f"{short_place(frame.path)}:{frame.line} {frame.function}")
        code = escape_lines(f"    {frame.text}") if frame.text else ""
        both = f"{place}\n{code}\n" if code else f"{place}\n"
        shown.append(element("mark", both) if frame.owner == "user" else both)
    return element(
        "div",
        heading(3, f"{ranks}: {clean_line(call.operator)} ({when})"),
        element("pre", *shown, tabindex="0", role="group", aria_label=ranks),
    )
