"""When ranks ended, on a time axis, the earliest on top; and the decisive lines of a log in their context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gonogo.finding import translated
from gonogo.finding.guarded_run import GuardedRunSummary, StepsOverTime
from gonogo.finding.logs import Excerpt, Logs, RankEnd
from gonogo.report.html.markup import element, escape_line, escape_lines, heading
from gonogo.report.html.over_time import over_time_section
from gonogo.report.untrusted import clean_line

_FAILURE_ORDER_TITLE = translated("Order in which the ranks failed")
_AXIS = translated("seconds after the first failure")
_MARKERS_LEGEND = translated("Solid: failed on its own. Hollow: failed because of another rank.")
_SHOWN_FIRST_ONLY = translated("Showing the first {shown} of {count}.")
_IN_LOG = translated("The decisive lines in their context")
_STEPS = translated("The steps of all ranks")
_SHOWN_LABEL = translated("Shown")
_TIME = translated("time of a step")
_GPU_MEMORY_LABEL = translated("GPU memory reserved")
_HOST_MEMORY_LABEL = translated("host memory")
_STEP_CHART_REMARK = translated(
    "One line per rank; where several steps share a point, the maximum is drawn. Shaded: a rank stalled. "
    "Drag to zoom, double-click to reset; keyboard: arrows, + and -, 0."
)
_WIDTH, _LEFT, _ROW, _RIGHT = 900, 90, 22, 230
_MAX_RANKS = 64


def log_sections(logs: Logs, language: str) -> Iterator[str]:
    """The sections about logs."""
    if logs.excerpts:
        shown = (_excerpt_markup(one) for one in logs.excerpts)
        yield element("section", heading(2, _IN_LOG.in_language(language)), *shown)
    yield from time_axis(logs.ends, language)


def guarded_sections(run: GuardedRunSummary, language: str) -> Iterator[str]:
    """The sections about a guarded run."""
    if run.over_time is not None:
        yield _steps_chart(run.over_time, language)
    first = run.first_failed
    ends = []
    for rank in run.ranks:
        failure = rank.failure
        own = first if first is not None and first.rank == rank.rank else None
        time = failure.time if failure is not None else own.time if own is not None else None
        if time is not None:
            what = (failure.type if failure is not None else rank.signal) or ""
            ends.append(RankEnd(rank.rank, time, "following" not in rank.outcome, what))
    yield from time_axis(sorted(ends, key=lambda end: end.time), language)


def _steps_chart(steps: StepsOverTime, language: str) -> str:
    """The chart that draws a line per rank, and the selector of what it shows."""
    kinds = {"seconds": _TIME, "gpu_bytes": _GPU_MEMORY_LABEL, "host_bytes": _HOST_MEMORY_LABEL}
    options = (
        (kind, text.in_language(language))
        for kind, text in kinds.items()
        if any(any(getattr(rank, kind)) for rank in steps.ranks)
    )
    return over_time_section(_STEPS, _SHOWN_LABEL, options, _STEP_CHART_REMARK, language)


def time_axis(ends: Sequence[RankEnd], language: str) -> Iterator[str]:
    """Ranks from top to bottom, time from left to right; nothing if all ended at the same time."""
    count = len(ends)
    ends = ends[:_MAX_RANKS]
    if not ends or ends[-1].time == ends[0].time:
        return
    title = _FAILURE_ORDER_TITLE.in_language(language)
    begin, last = ends[0].time, ends[-1].time - ends[0].time
    height = _ROW * (len(ends) + 2)
    marks = [_text_element(_LEFT, height - 4, f"0 … {last:,.3g}  {_AXIS.in_language(language)}", "start")]
    for row, end in enumerate(ends):
        y = _ROW * row + _ROW // 2
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * (end.time - begin) / last
        marks += [
            _text_element(_LEFT - 14, y + 4, f"rank {end.rank}", "end"),
            element("line", x1=str(_LEFT), x2=f"{x:.1f}", y1=str(y), y2=str(y), klass="axis"),
            element("circle", cx=f"{x:.1f}", cy=str(y), r="6", klass="root" if end.by_itself else "too-large"),
            _text_element(x + 12, y + 4, f"+{end.time - begin:,.2f} s  {clean_line(end.what)[:60]}", "start"),
        ]
    picture = element("svg", *marks, viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label=title)
    lines = [_MARKERS_LEGEND, *([_SHOWN_FIRST_ONLY.format(shown=len(ends), count=count)] if count > len(ends) else [])]
    remarks = (element("p", escape_line(one.in_language(language)), klass="remark") for one in lines)
    yield element("section", heading(2, title), element("div", picture, klass="wide", tabindex="0", role="group",
                                                        aria_label=title), *remarks)  # fmt: skip


def _text_element(x: float, y: float, content: str, anchor: str) -> str:
    return element("text", escape_line(content), x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _excerpt_markup(excerpt: Excerpt) -> str:
    name = clean_line(excerpt.path)
    shown = []
    for line in excerpt.lines:
        number = element("span", str(line.number), klass="number")
        text = escape_lines(line.text)
        shown.append(f"{number}{element('mark', text) if line.decisive else text}\n")
    block = element("pre", *shown, tabindex="0", role="group", aria_label=name)
    return element("figure", element("figcaption", element("span", escape_line(name), klass="place")), block)
