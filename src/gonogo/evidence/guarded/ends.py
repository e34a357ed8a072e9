"""How the ranks of a guarded run ended, and which ended first, as several hazards need to know."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

from gonogo.evidence.guarded.guarded_run import GuardedRank, GuardedRun
from gonogo.evidence.guarded.records import ExceptionRecord
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.role import Role, role_of_error
from gonogo.evidence.log.traceback import RaisedError as LoggedException
from gonogo.evidence.setup import Setup
from gonogo.finding import Span

TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SIMULTANEOUS_SECONDS = 0.3
"""Processes that a launcher sees exit within this many seconds count as having died at the same time."""
_EXIT_EXCEPTIONS = ("KeyboardInterrupt", "SystemExit", "GeneratorExit")

_Result = TypeVar("_Result")


class RankDeath(msgspec.Struct, frozen=True):
    """How a rank ended abnormally: by an exception, a signal or an exit status."""

    rank: int
    how: Literal["exception", "signal", "status", "vanished"]
    time: float
    consequence: bool
    """Whether it follows from another rank's end, such as a lost connection or a launcher's SIGTERM."""
    raised: ExceptionRecord | None = None
    signal: int | None = None
    status: int | None = None


def cached_per_run(answer: Callable[[GuardedRun], _Result]) -> Callable[[GuardedRun], _Result]:
    """Cache the answer for the most recent run, since several hazards need it."""
    kept: list[tuple[GuardedRun, _Result]] = []

    def cached_function(run: GuardedRun) -> _Result:
        if not kept or kept[0][0] is not run:
            kept[:] = [(run, answer(run))]
        return kept[0][1]

    cached_function.__doc__ = answer.__doc__
    return cached_function


@cached_per_run
def rank_deaths(run: GuardedRun) -> list[RankDeath]:
    """The ranks that ended abnormally: root causes before consequences, each in order of time."""
    first = _first_reported_failures(run)
    found = [death for rank in run.ranks if (death := _rank_death(run, rank, first)) is not None]
    return sorted(found, key=lambda death: (death.consequence, death.time, death.rank))


def root_deaths(run: GuardedRun) -> list[RankDeath]:
    """The deaths that don't follow from another rank's, the earliest first; empty if there are none."""
    return [death for death in rank_deaths(run) if not death.consequence]


def run_succeeded(run: GuardedRun) -> bool:
    """Whether the command exited with 0, and no rank died."""
    return run.exit_status == 0 and not root_deaths(run)


def was_interrupted(run: GuardedRun) -> bool:
    """Whether the command was asked to end while it ran: Ctrl-C, a scheduler's SIGTERM."""
    return any(launch.interrupted for launch in run.launches)


def fatal_exception(rank: GuardedRank) -> ExceptionRecord | None:
    """The exception that ended the rank, in its most detailed record; None if there was none."""
    ending = [one for one in rank.exceptions if one.type.rpartition(".")[2] not in _EXIT_EXCEPTIONS]
    main = [one for one in ending if not one.thread]
    last = next((one for one in reversed(main) if one.fatal), None)
    if last is None and main and not _exited_cleanly(rank):
        last = main[-1]
    if last is None:
        return None
    same = [one for one in main if (one.type, _first_line(one.message)) == (last.type, _first_line(last.message))]
    return max(same, key=lambda one: (bool(one.operands), one.module is not None, len(one.frames), -one.time))


MISMATCH_FACTS = ("deepspeed config", "model structure", "parameters", "trainable parameters", "parameter types")
"""Facts that must agree on all ranks for training to work."""


def ranks_have_different_models(run: GuardedRun) -> bool:
    """Whether ranks have different models or configs, so that their collectives can't match."""
    compared = [rank.compared for rank in run.ranks if rank.compared is not None]
    return any(difference.fact in MISMATCH_FACTS for one in compared for difference in one.differences)


def have_all_ranks_joined(run: GuardedRun) -> bool:
    """Whether all ranks of the world had joined before the first step, even if they write to other folders."""
    return any(rank.compared is not None and not rank.compared.missing for rank in run.ranks)


def ranks_without_records(run: GuardedRun) -> list[int]:
    """Ranks of the world without records in the folder."""
    return [number for number in range(run.world_size) if run.rank(number) is None] if run.ranks else []


def is_stalled(rank: GuardedRank) -> bool:
    """Whether the rank reported a stall and has shown no progress since."""
    if not rank.stalls:
        return False
    went_on = max([one.time for one in (*rank.resumed, *rank.steps)], default=0.0)
    return rank.stalls[-1].time > went_on


def is_consequence(exception: ExceptionRecord) -> bool:
    """Whether an exception only reports that another rank is gone: a closed connection, a timeout."""
    head = LogLine("", 1, f"{exception.type}: {_first_line(exception.message)}")
    return role_of_error(LoggedException(exception.type, exception.message, (), head)) is not Role.ROOT


def to_failure_log(run: GuardedRun, ranks: list[GuardedRank], setup: Setup | None = None) -> FailureLog:
    """The ranks' exceptions as a log, for hazards that read logs."""
    lines: list[LogLine] = []
    for rank in ranks:
        raised = fatal_exception(rank)
        if raised is None:
            continue
        text = raised.traceback or f"{raised.type}: {raised.message}"
        lines += [
            LogLine(rank.path or f"rank-{rank.rank}", number, line, rank.rank, time=raised.time)
            for number, line in enumerate(text.splitlines(), 1)
        ]
    return FailureLog(lines, setup or setup_of_run(run))


def setup_of_run(run: GuardedRun) -> Setup:
    """What is known of the run's setup: versions, the DeepSpeed config, the command."""
    import shlex

    start = next((rank.start for rank in run.ranks if rank.start is not None), None)
    return Setup(
        version_texts=dict(start.versions) if start is not None else {},
        deepspeed_config=deepspeed_config(run),
        launch=shlex.join(run.command),
    )


@cached_per_run
def deepspeed_config(run: GuardedRun) -> dict[str, object] | None:
    """The DeepSpeed config of the first rank that recorded one, in DeepSpeed's nested form; None if there is none."""
    for rank in run.ranks:
        settings = rank.joined.details.get("deepspeed config") if rank.joined is not None else None
        if settings:
            return _nest_settings(settings)
    for rank in run.ranks:
        for census in rank.placements:
            if census.zero_stage:
                return {"zero_optimization": {"stage": census.zero_stage}}
    return None


def rank_file_span(rank: GuardedRank) -> Span | None:
    """A span for the file with a rank's records."""
    return Span(rank.path, 1) if rank.path else None


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9; ``signal 99`` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def observed_exit_status(run: GuardedRun, rank: GuardedRank) -> tuple[int, float] | None:
    """(exit status, time at which the launcher noticed it); minus the signal's number if killed; None if unknown."""
    start = rank.start
    if start is None:
        return None
    for child in run.children:
        if child.pid == start.pid and child.host in ("", start.host):
            return child.status, child.time
    for launch in run.launches:
        own = launch.child == start.pid and launch.host == start.host
        if (own or (len(run.ranks) == 1 and not run.children)) and launch.exit_status is not None and launch.ended:
            status = launch.exit_status
            return (128 - status if status > 128 else status), launch.ended
    return None


def _first_reported_failures(run: GuardedRun) -> set[int]:
    """The ranks whose failure a launcher noticed first, within a tolerance."""
    noticed = {}
    for rank in run.ranks:
        ended = observed_exit_status(run, rank)
        if ended is not None and ended[0] != 0:
            noticed[rank.rank] = ended[1]
    earliest = min(noticed.values(), default=0.0)
    return {rank for rank, time in noticed.items() if time - earliest <= _SIMULTANEOUS_SECONDS}


def _rank_death(run: GuardedRun, rank: GuardedRank, first_ranks: set[int]) -> RankDeath | None:
    raised = fatal_exception(rank)
    if raised is not None:
        return RankDeath(rank.rank, "exception", raised.time, is_consequence(raised), raised)
    ended = observed_exit_status(run, rank)
    if ended is not None and ended[0] == 0:
        return None
    number = rank.end.signal if rank.end is not None else None
    if ended is not None and ended[0] < 0:
        number = -ended[0]
    if number is not None:
        # For ranks that the launcher killed afterwards, the time is when it noticed their end.
        time = rank.last_time if rank.rank in first_ranks or ended is None else ended[1]
        later = (bool(first_ranks) and rank.rank not in first_ranks) or is_stalled(
            rank
        )  # NCCL's watchdog aborts ranks that wait
        return RankDeath(rank.rank, "signal", time, number in TERMINATION_SIGNALS or later, signal=number)
    status = ended[0] if ended is not None else rank.end.status if rank.end is not None else None
    if status:
        return RankDeath(
            rank.rank, "status", rank.last_time, bool(first_ranks) and rank.rank not in first_ranks, status=status
        )
    if status is None and rank.end is None and run.exit_status is not None:
        known = bool(first_ranks) or run.exit_status == 0
        return RankDeath(rank.rank, "vanished", rank.last_time, known) if run.exit_status != 0 else None
    return None


def _exited_cleanly(rank: GuardedRank) -> bool:
    return rank.end is not None and rank.end.reason == "exit" and not rank.end.status


def _first_line(message: str) -> str:
    return message.partition("\n")[0]


def _nest_settings(settings: dict[str, str]) -> dict[str, object]:
    """Settings with dotted names as nested mappings."""
    config: dict[str, object] = {}
    for path, text in settings.items():
        at = config
        *parents, name = path.split(".")
        for parent in parents:
            below = at.setdefault(parent, {})
            if not isinstance(below, dict):
                below = at[parent] = {}
            at = below
        at[name] = _parse_value(text)
    return config


def _parse_value(text: str) -> object:
    try:
        value: object = msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, UnicodeError):
        return {"True": True, "False": False, "None": None}.get(text, text)
    return value
