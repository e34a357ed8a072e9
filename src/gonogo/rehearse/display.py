"""The live display of a rehearsal on a terminal: what each rank does, how far it is, what memory it holds."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text as Line

from gonogo.finding import Text
from gonogo.finding.words import size
from gonogo.rehearse.progress import OnProgress, RankStatus, RehearsalStatus
from gonogo.rehearse.prompts import PROGRESS, PROGRESS_LINES, language_of_questions, paused_for_questions

_HEADERS = (
    Text("rank", "rank"),
    Text("phase", "阶段"),
    Text("step", "步"),
    Text("operators", "算子"),
    Text("device memory", "显存"),
    Text("host memory", "内存"),
    Text("activity", "当前活动"),
)
_STATES = {
    "waiting": Text("waiting", "等待"),
    "running": Text("starting", "启动中"),
    "completed": Text("completed", "已完成"),
    "raised": Text("raised an exception", "抛出异常"),
    "out-of-memory": Text("out of memory", "显存或内存不足"),
    "diverged": Text("diverged", "各 rank 分歧"),
    "unsupported": Text("stopped: can't be rehearsed further", "无法继续排练"),
    "timed-out": Text("timed out", "超时"),
    "killed": Text("killed", "被终止"),
    "interrupted": Text("interrupted", "已中断"),
}
# Ranks that are shown at once; a world of hundreds would fill the screen.
_MAX_ROWS = 12


@contextlib.contextmanager
def live_display(language: str, console: Console | None = None) -> Iterator[OnProgress | None]:
    """What to hand to ``rehearse`` as ``on_progress``: a live display on stderr, or None where that is no terminal."""
    with language_of_questions(language):
        if os.environ.get(PROGRESS) == PROGRESS_LINES:
            say = progress_lines(language)
            yield lambda status: say(status.activity)
            return
        console = console or Console(stderr=True)
        if not console.is_terminal:
            yield None
            return
        with (
            Live(console=console, refresh_per_second=8, transient=True) as live,
            paused_for_questions(lambda: _pause_display(live)),
        ):
            yield lambda status: live.update(_rendered(status, language))


@contextlib.contextmanager
def _pause_display(live: Live) -> Iterator[None]:
    """Take the display off the terminal within the block."""
    live.stop()
    try:
        yield
    finally:
        live.start()


def progress_lines(language: str) -> Callable[[Text], None]:
    """What to tell of progress: each new thing becomes a line of stderr."""
    last = [""]

    def say(text: Text) -> None:
        line = text.in_language(language)
        if line != last[0]:
            last[0] = line
            print(f"{PROGRESS}: {line}", file=sys.stderr, flush=True)

    return say


def _rendered(status: RehearsalStatus, language: str) -> Group:
    title = Line(f"{status.activity.in_language(language)}  {status.seconds:.0f} s", style="bold")
    if not status.ranks:
        return Group(title)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, header in enumerate(_HEADERS):
        table.add_column(
            header.in_language(language),
            justify="right" if index in (0, 2, 3, 4, 5) else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    shown = _most_informative(status.ranks)
    for rank in shown:
        table.add_row(*_row(rank, language))
    hidden = len(status.ranks) - len(shown)
    return Group(title, table, Line(f"+ {hidden}", style="dim")) if hidden else Group(title, table)


def _most_informative(ranks: tuple[RankStatus, ...]) -> list[RankStatus]:
    """The ranks that run first, then the others, up to what fits; by rank within each."""
    order = sorted(ranks, key=lambda rank: (rank.state != "running", rank.state == "completed", rank.rank))
    return sorted(order[:_MAX_ROWS], key=lambda rank: rank.rank)


def _row(rank: RankStatus, language: str) -> list[Line]:
    doing = rank.progress
    if doing is None or rank.state != "running":
        state = _STATES.get(rank.state, Text(rank.state, rank.state)).in_language(language)
        return [Line(str(rank.rank)), Line(state), *[Line("")] * 5]
    return [
        Line(str(rank.rank)),
        Line(doing.phase),
        Line(str(doing.step)),
        Line(f"{doing.operators:,}"),
        Line(size(doing.device_bytes)),
        Line(size(doing.host_bytes)),
        Line("".join(letter for letter in doing.activity if letter.isprintable())),
    ]
