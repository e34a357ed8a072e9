"""All facts about a failure: the first exception and its consequences, its place, and the pending collectives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.failure.message import parse_message
from gonogo.evidence.failure.native import native_symbols
from gonogo.evidence.log.code_owner import code_places
from gonogo.evidence.log.exit_summary import process_exits, torchrun_first_failure
from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.stall import is_timeout_message
from gonogo.evidence.log.traceback import LogFrame, RaisedError
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding.failure import CodePlace, FailureFacts, LoggedCollective, RaisedException

_TIMEOUT_LINE_PATTERN = Pattern(r"(?:Watchdog caught collective operation timeout: |Work )Work[NH]CCL\(")
_STATUS_LINE_PATTERN = Pattern(r"(?:at work: |at work sequence id: )\d+,? .*last enqueued")
_FIELD_PATTERN = lazy_compile(
    r"SeqNum=(?P<sequence>\d{1,12})|OpType=(?P<operation>\w{1,40})|NumelIn=(?P<elements_in>\d{1,15})"
    r"|NumelOut=(?P<elements_out>\d{1,15})|Timeout\(ms\)=(?P<timeout>\d{1,15})"
    r"|ran for (?P<elapsed>\d{1,15}) milliseconds|\[(?:Rank|rank) ?(?P<rank>\d{1,5})\]"
    r"|\[PG (?:ID )?(?P<group>\d{1,4})"
)
_STATUS_FIELD_PATTERN = lazy_compile(
    r"at work(?: sequence id)?: (?P<sequence>\d{1,12})|last enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,12})"
    r"|last completed (?:NCCL )?work: (?P<completed>-?\d{1,12})|Rank (?P<rank>\d{1,5})\]"
)
_MAX_CALLS = 512


def collective_calls(log: FailureLog) -> Iterator[LoggedCollective]:
    """The timed-out collectives of each rank without duplicates, in the order of the log."""
    statuses: dict[tuple[int | None, int | None], dict[str, str]] = {}
    for found in log.find_all(_STATUS_LINE_PATTERN):
        fields = _matched_fields(_STATUS_FIELD_PATTERN, found.text)
        rank = _int_or_none(fields.get("rank")) if "rank" in fields else found.line.rank
        statuses.setdefault((rank, _int_or_none(fields.get("sequence"))), fields)
    seen: set[tuple[int | None, int | None, str]] = set()
    for found in log.find_all(_TIMEOUT_LINE_PATTERN):
        fields = _matched_fields(_FIELD_PATTERN, found.text)
        rank = _int_or_none(fields.get("rank")) if "rank" in fields else found.line.rank
        sequence, operation = _int_or_none(fields.get("sequence")), fields.get("operation", "")
        if (rank, sequence, operation) in seen or len(seen) >= _MAX_CALLS:
            continue
        seen.add((rank, sequence, operation))
        status = statuses.get((rank, sequence), {})
        yield LoggedCollective(
            rank=rank,
            operation=operation,
            sequence=sequence,
            elements_in=_int_or_none(fields.get("elements_in")),
            elements_out=_int_or_none(fields.get("elements_out")),
            timeout_seconds=_to_seconds(fields.get("timeout")),
            elapsed_seconds=_to_seconds(fields.get("elapsed")),
            group=fields.get("group", ""),
            log=found.line.path,
            line=found.line.number,
            enqueued=_int_or_none(status.get("enqueued")),
            completed=_int_or_none(status.get("completed")),
        )


def _matched_fields(pattern: re.Pattern[str], text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for match in pattern.finditer(text):
        for name, value in match.groupdict().items():
            if value is not None:
                fields.setdefault(name, value)
    return fields


def _int_or_none(text: str | None) -> int | None:
    return int(text) if text is not None else None


def _to_seconds(milliseconds: str | None) -> float | None:
    return int(milliseconds) / 1000 if milliseconds is not None else None


_MAX_CAUSE_CHAIN_LENGTH = 12
_CONTAINER_PACKAGES = ("omegaconf",)
"""Packages that only store other code's settings; the caller is the place of the failure."""
_MAX_FRAMES = 80


@lru_cache(maxsize=1)
def failure_facts(log: FailureLog) -> FailureFacts:
    """The facts of the first failure in the log; empty if there is none."""
    versions = log.setup.version_texts
    root = torchrun_first_failure(log)
    error = first_root_error(log)
    if error is not None:
        error = last_chained_error(log, error)
    chain = tuple(_exception_chain(error, versions)) if error is not None else ()
    frames = chain[-1].frames if chain else ()
    return FailureFacts(
        chain=chain,
        at=next((one for one in reversed(frames) if one.package not in _CONTAINER_PACKAGES), frames[-1])
        if frames
        else None,
        your_line=next(
            (frame for one in reversed(chain) for frame in reversed(one.frames) if _is_user_frame(frame)), None
        ),
        root_rank=root.rank if root is not None else None,
        collectives=tuple(collective_calls(log)),
        native=tuple(native_symbols(log)),
        exit_codes=tuple(dict.fromkeys(code for _, code in process_exits(log))),
        versions=_versions_in_chain(chain, versions),
    )


_QUOTED_RANK_ERRORS_PATTERN = lazy_compile(r"^CheckpointException ranks:")
"""The exception of torch's distributed checkpoint, which quotes those of all ranks."""


def first_root_error(log: FailureLog) -> LoggedError | None:
    """The exception that occurred first and is not a consequence of another failure.

    That is the exception of the rank that torchrun names; or else the earliest one, if all of them have timestamps;
    or else the first in the logs.
    """
    roots = [error for error in log.errors if error.role is Role.ROOT]
    own = [error for error in roots if not is_timeout_message(error.message)] or roots
    own = [error for error in own if not _QUOTED_RANK_ERRORS_PATTERN.search(error.message[:200])] or own
    if not own:
        return None
    root = torchrun_first_failure(log)
    if root is not None and root.rank is not None:
        of_rank = [error for error in own if root.rank in error.ranks]
        if of_rank:
            return of_rank[0]
    times = {index: min((time for _, time in error.times_by_rank), default=None) for index, error in enumerate(own)}
    if len({error.ranks for error in own}) > 1 and all(time is not None for time in times.values()):
        return own[min(times, key=lambda index: times[index] or 0.0)]
    return own[0]


def last_chained_error(log: FailureLog, error: LoggedError) -> LoggedError:
    """The last exception of the chain (``raise … from``) that starts with the given one."""
    by_cause = {
        (cause.at.path, cause.at.number): one
        for one in log.errors
        if one.role is Role.ROOT and (cause := one.raised.cause) is not None
    }
    for _ in range(_MAX_CAUSE_CHAIN_LENGTH):
        next_one = by_cause.get((error.raised.at.path, error.raised.at.number))
        if next_one is None:
            break
        error = next_one
    return error


# fmt: off
_PLAIN_EXCEPTION_TYPES = frozenset((
    "KeyError", "IndexError", "NameError", "TypeError", "ValueError", "AttributeError", "AssertionError",
    "ZeroDivisionError", "FileNotFoundError", "NotADirectoryError", "IsADirectoryError", "PermissionError",
    "UnboundLocalError", "ImportError", "ModuleNotFoundError", "NotImplementedError", "SyntaxError", "RecursionError",
    "FileExistsError", "UnicodeDecodeError", "JSONDecodeError", "OverflowError", "RuntimeError",
))
# fmt: on
_ASYNCHRONOUS_ERROR_PATTERN = lazy_compile(
    r"(?i)cuda|nccl|asynchronous|HIP error|\bNPU\b|\bACL\b|out of memory|DataLoader worker|Caught \w+ in "
    r"|allocate memory|not enough memory|InnerRun|npu:"
)


def is_raised_in_user_code(exception: RaisedException) -> bool:
    """Whether an ordinary exception was raised in the user's own code, so that it is certain what happened."""
    at = exception.frames[-1] if exception.frames else None
    if at is None or not _is_user_frame(at) or not at.line:
        return False
    return exception.type in _PLAIN_EXCEPTION_TYPES and not _ASYNCHRONOUS_ERROR_PATTERN.search(
        exception.message.text[:2000]
    )


def _exception_chain(error: LoggedError, versions: Mapping[str, str]) -> Iterator[RaisedException]:
    raised: list[RaisedError] = [error.raised]
    while (cause := raised[-1].cause) is not None and len(raised) < _MAX_CAUSE_CHAIN_LENGTH:
        raised.append(cause)
    for one in reversed(raised):
        yield RaisedException(
            type=one.type,
            message=parse_message(one.type, one.message),
            frames=code_places(_without_recursion(one.frames), versions),
            log=one.at.path,
            line=one.at.number,
            ranks=error.ranks if one is error.raised else (),
            time=one.at.time,
        )


def _without_recursion(frames: tuple[LogFrame, ...]) -> tuple[LogFrame, ...]:
    """The frames without the middle of an infinite recursion."""
    return frames if len(frames) <= _MAX_FRAMES else (*frames[:10], *frames[10 - _MAX_FRAMES :])


def _is_user_frame(frame: CodePlace) -> bool:
    return frame.owner == "user" and not frame.path.startswith("<")


def _versions_in_chain(chain: Iterable[RaisedException], versions: Mapping[str, str]) -> dict[str, str]:
    """The known versions of the packages in the chain's frames and messages."""
    named: set[str] = set()
    for one in chain:
        named |= {frame.package for frame in one.frames if frame.package}
        named |= {package.name for package in one.message.packages}
        for module in (one.message.subject, *one.message.symbols):
            named.add(canonical_package_name(module.partition(".")[0]))
    return {name: version for name, version in sorted(versions.items()) if name in named}
