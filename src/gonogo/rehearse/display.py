"""The live display of a rehearsal on a terminal: each rank's activity, progress and memory."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text as Line

from gonogo.finding import Text, translated
from gonogo.finding.text import load_texts
from gonogo.finding.words import PHASE_NAMES, size
from gonogo.prepare.prompts import (
    PROGRESS,
    PROGRESS_STATES,
    STATE,
    paused_during_prompts,
    prompt_language,
    writes_lines,
)
from gonogo.rehearse.progress import OnProgress, RankStatus, RehearsalStatus
from gonogo.report.page import column_width
from gonogo.report.untrusted import clean_line

_RANK = translated("rank {rank}")
_PHASE_AND_STEP = translated("{phase}, step {step} of {steps}")
_PHASE = translated("{phase}, step {step}")
_GPU_MEMORY_LABEL = translated("GPU {size}")
_HOST_MEMORY_LABEL = translated("host {size}")
_OPERATOR_COUNT = translated("{count:,} operators")
_RANKS_DONE = translated("{done} of {all} ranks done")
_COLUMN_GAP = "  "
SECOND_PASS = translated("second pass, to find the forward pass that the failure comes from")
STATES: dict[str, Text] = load_texts(__file__)
# The most ranks that are shown at once: hundreds would fill the screen.
_MAX_ROWS = 12


@contextlib.contextmanager
def live_display(language: str, console: Console | None = None) -> Iterator[OnProgress | None]:
    """The ``on_progress`` for ``rehearse``: a live display on stderr, or None if that isn't a terminal."""
    with prompt_language(language):
        if writes_lines():
            report_progress = progress_line_printer(language)
            say_states = _json_state_printer() if os.environ[PROGRESS] == PROGRESS_STATES else None

            def show_status(status: RehearsalStatus) -> None:
                report_progress(status.activity)
                if say_states is not None:
                    say_states(status)

            yield show_status
            return
        console = console or Console(stderr=True)
        if not console.is_terminal:
            yield None
            return
        with (
            Live(console=console, refresh_per_second=8, transient=True) as live,
            paused_during_prompts(lambda: _pause_display(live)),
        ):
            yield lambda status: live.update(_render(status, language, console.width))


@contextlib.contextmanager
def _pause_display(live: Live) -> Iterator[None]:
    """Remove the display from the terminal within the block."""
    live.stop()
    try:
        yield
    finally:
        live.start()


def progress_line_printer(language: str) -> Callable[[Text], None]:
    """A function that writes each new message to stderr as a line."""
    last = [""]

    def print_line(text: Text) -> None:
        line = text.in_language(language)
        if line != last[0]:
            last[0] = line
            print(f"{PROGRESS}: {line}", file=sys.stderr, flush=True)

    return print_line


def _json_state_printer() -> Callable[[RehearsalStatus], None]:
    """A function that writes the state of the ranks to stderr as a line of JSON whenever it has changed."""
    last = [b""]

    def print_state(status: RehearsalStatus) -> None:
        payload = msgspec.json.encode([_rank_as_json(rank) for rank in _ranks_to_show(status.ranks)])
        if status.ranks and payload != last[0]:
            last[0] = payload
            line = msgspec.json.encode({"seconds": round(status.seconds, 1), "steps": status.steps})
            print(f'{STATE}: {line[:-1].decode()},"ranks":{payload.decode()}}}', file=sys.stderr, flush=True)

    return print_state


def _rank_as_json(rank: RankStatus) -> dict[str, object]:
    doing = rank.progress
    found: dict[str, object] = {"rank": rank.rank, "state": rank.state}
    if rank.failure:
        found["failure"] = clean_line(rank.failure)
    if doing is not None and rank.state == "running":
        found |= {
            "phase": doing.phase,
            "step": doing.step,
            "gpu": doing.device_bytes,
            "host": doing.host_bytes,
            "doing": clean_line(doing.activity),
        }
    return found


def _render(status: RehearsalStatus, language: str, width: int = 80) -> Group:
    """The current activity, and a line for each rank, cut to the width."""
    title = Line(f"{status.activity.in_language(language)}  {status.seconds:.0f} s", style="bold")
    if not status.ranks:
        return Group(title)
    done = sum(rank.state not in ("waiting", "running") for rank in status.ranks)
    if len(status.ranks) > 1:
        title.append(
            _COLUMN_GAP + _RANKS_DONE.format(done=done, all=len(status.ranks)).in_language(language), style="dim"
        )
    shown = _ranks_to_show(status.ranks)
    lines = [Line(_join_fitting_parts(_rank_line_parts(rank, status.steps, language), width)) for rank in shown]
    hidden = len(status.ranks) - len(shown)
    return Group(title, *lines, *([Line(f"+ {hidden}", style="dim")] if hidden else []))


def _ranks_to_show(ranks: tuple[RankStatus, ...]) -> list[RankStatus]:
    """The ranks to show, in order: running ones are preferred, completed ones are dropped first."""
    order = sorted(ranks, key=lambda rank: (rank.state != "running", rank.state == "completed", rank.rank))
    return sorted(order[:_MAX_ROWS], key=lambda rank: rank.rank)


def _rank_line_parts(rank: RankStatus, steps: int, language: str) -> list[str]:
    """The parts of a rank's line, most important first."""
    name = _RANK.format(rank=rank.rank).in_language(language)
    doing = rank.progress
    if doing is None or rank.state != "running":
        state = STATES.get(rank.state, Text(rank.state, rank.state)).in_language(language)
        return [name, state, clean_line(rank.failure)]
    phase = PHASE_NAMES.get(doing.phase, Text(doing.phase, doing.phase))
    where = (_PHASE_AND_STEP if steps and doing.step < steps else _PHASE).format(
        phase=phase, step=doing.step + 1, steps=steps
    )
    if doing.phase in ("load", "init", "evaluate", "save", "exit"):  # these belong to no step
        where = phase
    return [
        name,
        *([clean_line(rank.failure), SECOND_PASS.in_language(language)] if rank.failure else []),
        where.in_language(language),
        _GPU_MEMORY_LABEL.format(size=size(doing.device_bytes)).in_language(language),
        _HOST_MEMORY_LABEL.format(size=size(doing.host_bytes)).in_language(language),
        _OPERATOR_COUNT.format(count=doing.operators).in_language(language),
        "".join(letter for letter in doing.activity if letter.isprintable()),
    ]


def _join_fitting_parts(parts: list[str], width: int) -> str:
    """As many whole parts as fit on a line, at least the first."""
    line = parts[0]
    for part in filter(None, parts[1:]):
        if column_width(line) + len(_COLUMN_GAP) + column_width(part) > width:
            break
        line = f"{line}{_COLUMN_GAP}{part}"
    return line
