"""When ranks ended, on a time axis, the first one on top; and a log's decisive lines in their context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gonogo.finding import Text
from gonogo.finding.guarded_run import GuardedRunSummary, StepsOverTime
from gonogo.finding.logs import Excerpt, Logs, RankEnd
from gonogo.report.html.markup import element, heading, lines, text
from gonogo.report.html.over_time import over_time
from gonogo.report.untrusted import clean_line

_ORDER = Text("Order in which the ranks failed", "各 rank 失败的先后")
_AXIS = Text("seconds after the first failure", "距首个失败的秒数")
_READ = Text(
    "Solid: failed on its own. Hollow: failed because of another rank.",
    "实心：自身出错；空心：因其他 rank 出错而失败。",
)
_FIRST = Text("Showing the first {shown} of {count}.", "只显示 {count} 个中最先失败的 {shown} 个。")
_IN_LOG = Text("The decisive lines in their context", "关键行及其上下文")
_STEPS = Text("The steps of all ranks", "各 rank 的每一步")
_SHOWN = Text("Shown", "显示")
_TIME = Text("time of a step", "每步用时")
_GPU = Text("GPU memory reserved", "显存（已预留）")
_HOST = Text("host memory", "主机内存")
_HIGHEST = Text(
    "One line per rank; where several steps share a point, the maximum is drawn. Shaded: a rank stalled. "
    "Drag to zoom, double-click to reset; keyboard: arrows, + and -, 0.",
    "每个 rank 一条线；同一个点上的多步取最大值。阴影：有 rank 停顿。拖动可放大，双击恢复；键盘：方向键、+ 与 -、0。",
)
_WIDTH, _LEFT, _ROW, _RIGHT = 900, 90, 22, 230
_MAX_RANKS = 64


def log_sections(logs: Logs, language: str) -> Iterator[str]:
    """What is shown of logs."""
    if logs.excerpts:
        shown = (_excerpt(one) for one in logs.excerpts)
        yield element("section", heading(2, _IN_LOG.in_language(language)), *shown)
    yield from time_axis(logs.ends, language)


def guarded_sections(run: GuardedRunSummary, language: str) -> Iterator[str]:
    """What is shown of a guarded run."""
    if run.over_time is not None:
        yield _steps(run.over_time, language)
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


def _steps(steps: StepsOverTime, language: str) -> str:
    """Where the page's script draws a line a rank, and the choice of what it is of."""
    kinds = {"seconds": _TIME, "gpu_bytes": _GPU, "host_bytes": _HOST}
    options = (
        (kind, said.in_language(language))
        for kind, said in kinds.items()
        if any(any(getattr(rank, kind)) for rank in steps.ranks)
    )
    return over_time(_STEPS, _SHOWN, options, _HIGHEST, language)


def time_axis(ends: Sequence[RankEnd], language: str) -> Iterator[str]:
    """Ranks from top to bottom, time from left to right; nothing where there is no order to show."""
    count = len(ends)
    ends = ends[:_MAX_RANKS]
    if not ends or ends[-1].time == ends[0].time:
        return
    title = _ORDER.in_language(language)
    begin, last = ends[0].time, ends[-1].time - ends[0].time
    height = _ROW * (len(ends) + 2)
    marks = [_label(_LEFT, height - 4, f"0 … {last:,.3g}  {_AXIS.in_language(language)}", "start")]
    for row, end in enumerate(ends):
        y = _ROW * row + _ROW // 2
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * (end.time - begin) / last
        marks += [
            _label(_LEFT - 14, y + 4, f"rank {end.rank}", "end"),
            element("line", x1=str(_LEFT), x2=f"{x:.1f}", y1=str(y), y2=str(y), klass="axis"),
            element("circle", cx=f"{x:.1f}", cy=str(y), r="6", klass="root" if end.by_itself else "too-large"),
            _label(x + 12, y + 4, f"+{end.time - begin:,.2f} s  {clean_line(end.what)[:60]}", "start"),
        ]
    picture = element("svg", *marks, viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label=title)
    said = [_READ, *([_FIRST.format(shown=len(ends), count=count)] if count > len(ends) else [])]
    remarks = (element("p", text(one.in_language(language)), klass="remark") for one in said)
    yield element("section", heading(2, title), element("div", picture, klass="wide", tabindex="0", role="group",
                                                        aria_label=title), *remarks)  # fmt: skip


def _label(x: float, y: float, content: str, anchor: str) -> str:
    return element("text", text(content), x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _excerpt(excerpt: Excerpt) -> str:
    name = clean_line(excerpt.path)
    shown = []
    for line in excerpt.lines:
        number = element("span", str(line.number), klass="number")
        said = lines(line.text)
        shown.append(f"{number}{element('mark', said) if line.decisive else said}\n")
    block = element("pre", *shown, tabindex="0", role="group", aria_label=name)
    return element("figure", element("figcaption", element("span", text(name), klass="place")), block)
