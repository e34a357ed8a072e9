"""A failed run's logs as hazards see them: exceptions merged over ranks, searchable lines, and the setup."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from gonogo.evidence.dumps.flight_recorder import MAX_BYTES, FlightRecorderDump, parse_flight_recorder_dump
from gonogo.evidence.log.code_owner import is_user_path
from gonogo.evidence.log.line import MAX_LINE_LENGTH, LogLine, clean_lines
from gonogo.evidence.log.role import Role, is_advice, role_of_error
from gonogo.evidence.log.sieve import Part
from gonogo.evidence.log.traceback import LogFrame, RaisedError, parse_tracebacks
from gonogo.evidence.patterns import Match, Pattern, lazy_compile, with_numbers_zeroed
from gonogo.evidence.setup import Setup
from gonogo.finding import Span

if TYPE_CHECKING:  # the modules that open and filter logs are only imported if there is one
    from gonogo.evidence.log.source import LogSource

ROOM = 6 << 20
"""Bytes kept of all logs together."""
MAX_ERRORS = 400
"""Maximum number of distinct exceptions."""
_MIN_LINES_TO_DEDUPLICATE = 2000

GENERIC_ERROR_WORDS = (
    "Traceback (most recent call last)", "─ Traceback", '  File "', "Error", "Exception", "error:", "ERROR", "fatal",
    "FAILED", "Killed", "killed", "oom-kill", "Out of memory", "out of memory", "exitcode", "return code", "Signal ",
    "SIG", "signal", "Watchdog", "watchdog", "Segmentation fault", "Bus error", "core dumped", "terminate called",
    "NCCL WARN", "No space left", "Failed", "failed", "cannot", "Cannot", "unsupported", "not supported", "timed out",
    "timeout",
)  # fmt: skip
"""Words that indicate a failure for any hazard; a hazard adds its own through ``log_words``."""


class LoggedError(msgspec.Struct, frozen=True, dict=True):
    """One exception, as the first log that has it shows it. ``ranks`` and ``count`` cover all its occurrences."""

    raised: RaisedError
    role: Role
    ranks: tuple[int, ...]
    count: int
    times_by_rank: tuple[tuple[int, float], ...] = ()
    """(rank, seconds since 1970) for each rank whose log has a timestamp: when it first raised the exception."""

    @property
    def type(self) -> str:
        """The exception's type without its module."""
        return self.raised.type

    @property
    def message(self) -> str:
        """The exception's message, possibly of several lines."""
        return self.raised.message

    @cached_property
    def flat_message(self) -> str:
        """The message with line breaks and runs of whitespace replaced by single blanks."""
        return " ".join(self.message.split())

    @property
    def frames(self) -> tuple[LogFrame, ...]:
        """The frames, outermost first, without those of causing exceptions; empty if the log shows none."""
        return self.raised.frames

    @property
    def all_frames(self) -> tuple[LogFrame, ...]:
        """The frames of the exceptions that led to this one, then its own."""
        frames: tuple[LogFrame, ...] = self.frames
        cause = self.raised.cause
        while cause is not None:
            frames, cause = (*cause.frames, *frames), cause.cause
        return frames

    @property
    def innermost(self) -> LogFrame | None:
        """The frame in which it was raised."""
        return self.frames[-1] if self.frames else None

    def passes(self, *fragments: str) -> bool:
        """Whether any frame's path, function or code contains a fragment: ``passes("zero/stage3.py", "backward")``."""
        return self.frame(*fragments) is not None

    def frame(self, *fragments: str) -> LogFrame | None:
        """The innermost frame whose path, function or code contains one of the fragments, or None."""
        for frame in reversed(self.all_frames):
            if any(part in frame.path or part in frame.function or part in frame.code for part in fragments):
                return frame
        return None

    @property
    def last_user_frame(self) -> LogFrame | None:
        """The innermost frame outside packages, clones of known frameworks, and Python itself, or None."""
        return next((frame for frame in reversed(self.frames) if is_user_path(frame.path)), None)


class LineMatch(msgspec.Struct, frozen=True):
    """A line that a pattern matched."""

    line: LogLine
    match: Match

    @property
    def text(self) -> str:
        """The text of the whole line, not only of the match."""
        return self.line.text


class FailureLog:
    """Everything known about a failed run. Created by :func:`read_logs`; hazards only read it."""

    def __init__(
        self,
        lines: Sequence[LogLine],
        known_setup: Setup,
        logs: tuple[LogFileInfo, ...] = (),
        dumps: tuple[FlightRecorderDump, ...] = (),
    ) -> None:
        self.lines = lines
        self.logs = logs
        self.dumps = dumps
        """What PyTorch's Flight Recorder wrote of the ranks, in their order."""
        self.given_setup = known_setup

    @cached_property
    def setup(self) -> Setup:
        """Versions, DeepSpeed config, launch command and script: as given beside the log, completed from the log."""
        from gonogo.evidence.log.facts import complete_setup_from_log

        complete = complete_setup_from_log(self.lines, self._candidates, self.given_setup)
        if complete.zero_stage is None and self.passes("deepspeed/runtime/zero/stage3.py"):
            return replace(complete, launch=f"{complete.launch}\nzero_stage: 3".strip())
        return complete

    @cached_property
    def errors(self) -> tuple[LoggedError, ...]:
        """All exceptions in log order; repeats, and the same exception on several ranks, are merged into one."""
        return tuple(error for error in self._merged_errors if error.type)

    @cached_property
    def truncated_errors(self) -> tuple[LoggedError, ...]:
        """Tracebacks cut off by the log's end, before the line that names the exception: type and message are empty.

        Logs are often pasted this way. If only one failure has these innermost frames, they identify it even so.
        """
        return tuple(error for error in self._merged_errors if not error.type)

    @cached_property
    def _merged_errors(self) -> tuple[LoggedError, ...]:
        return tuple(_merge_errors(self.lines))

    def errors_of(self, *types: str, says: Pattern | None = None) -> Iterator[LoggedError]:
        """The exceptions of any of the types (of all types if none is given) whose message matches ``says``."""
        for error in self.errors:
            if (not types or error.type in types) and (says is None or says.search(error.message)):
                yield error

    def find(self, pattern: Pattern) -> LineMatch | None:
        """The first matching line that isn't mere advice, or None. A pattern never spans lines."""
        return next(self.find_all(pattern), None)

    def find_all(self, pattern: Pattern) -> Iterator[LineMatch]:
        """The lines that match and aren't mere advice, in order."""
        for index in self._candidates(pattern):
            line = self.lines[index]
            here = pattern.search(line.text)
            if here is not None and not is_advice(line.text, here.start()):
                yield LineMatch(line, here)

    def _candidates(self, pattern: Pattern) -> Iterator[int]:
        """The indices of lines that match within the whole text, where whitespace may match a line's end."""
        position = 0
        if self._shapes is not None and not pattern.may_match(self._shapes):
            return
        if self._distinct_text is not None and pattern.search_bytes(self._distinct_text) is None:
            return
        while position < len(self._utf8_text) and (match := pattern.search_bytes(self._utf8_text, position)):
            index = bisect_right(self._line_starts, match.start()) - 1
            position = self._line_starts[index + 1] if index + 1 < len(self._line_starts) else len(self._utf8_text)
            yield index

    def says(self, pattern: Pattern) -> bool:
        """Whether any line of the log matches the pattern, even if it is only advice."""
        return any(pattern.search(self.lines[index].text) for index in self._candidates(pattern))

    def has(self, text: str) -> bool:
        """Whether any line of the log contains the text, even if it is only advice."""
        looked_for = text.encode("utf-8", "replace")
        if self._shapes is not None and b"\n" not in looked_for and with_numbers_zeroed(looked_for) not in self._shapes:
            return False
        return looked_for in (
            self._utf8_text if self._distinct_text is None or b"\n" in looked_for else self._distinct_text
        )

    def ranks_of(self, pattern: Pattern) -> tuple[int, ...]:
        """The ranks that wrote a line that the pattern matches."""
        return tuple(sorted({found.line.rank for found in self.find_all(pattern) if found.line.rank is not None}))

    def lines_before(self, line: LogLine, count: int) -> Sequence[LogLine]:
        """Up to ``count`` lines of the same log before a line."""
        index = self._index_by_line[line.path, line.number]
        return [other for other in self.lines[max(index - count, 0) : index] if other.path == line.path]

    def lines_after(self, line: LogLine, count: int) -> Sequence[LogLine]:
        """Up to ``count`` lines of the same log after a line."""
        index = self._index_by_line[line.path, line.number]
        return [other for other in self.lines[index + 1 : index + 1 + count] if other.path == line.path]

    def passes(self, *fragments: str) -> bool:
        """Whether a frame of any traceback contains one of the fragments in its path, function or code."""
        return any(error.passes(*fragments) for error in self._merged_errors)

    @cached_property
    def _utf8_text(self) -> bytes:
        """All lines as one UTF-8 text, which patterns search."""
        return b"".join(line.text.encode("utf-8", "replace") + b"\n" for line in self.lines)

    @cached_property
    def _distinct_text(self) -> bytes | None:
        """Each distinct line once, if the log repeats itself, since hundreds of patterns search it; else None."""
        texts = dict.fromkeys(line.text for line in self.lines)
        if 2 * len(texts) > len(self.lines) or len(self.lines) < _MIN_LINES_TO_DEDUPLICATE:
            return None
        return "\n".join(texts).encode("utf-8", "replace") + b"\n"

    @cached_property
    def _shapes(self) -> bytes | None:
        """The distinct lines with each number replaced by 0; None if the log is short.

        Little is left of a log that only repeats tracebacks, and it rules most patterns out by their literals.
        """
        if len(self.lines) < _MIN_LINES_TO_DEDUPLICATE:
            return None
        return b"\n".join(dict.fromkeys(with_numbers_zeroed(self._utf8_text).split(b"\n")))

    @cached_property
    def _line_starts(self) -> list[int]:
        starts, position = [], 0
        for line in self.lines:
            starts.append(position)
            position += len(line.text.encode("utf-8", "replace")) + 1
        return starts

    @cached_property
    def _index_by_line(self) -> dict[tuple[str, int], int]:
        """The index of each line by the log's path and the line's number."""
        return {(line.path, line.number): index for index, line in enumerate(self.lines)}


class LogFileInfo(msgspec.Struct, frozen=True):
    """A log that was read. ``dropped_bytes``: how much of the relevant text exceeded the limit."""

    path: str
    bytes: int
    lines: int
    dropped_bytes: int = 0


def span_of_line(line: LogLine) -> Span:
    """A log line as a span that a finding shows as evidence."""
    return Span(line.path, line.number, text=line.text.strip()[:400])


def read_logs(
    sources: Sequence[LogSource],
    words: Iterable[str],
    known_setup: Setup,
    on_bytes: Callable[[int], None] = lambda count: None,
) -> FailureLog:
    """Read the logs, keeping the lines around ``words`` and :data:`GENERIC_ERROR_WORDS`.

    ``on_bytes`` is called with the size of each chunk as it is read.
    """

    from gonogo.evidence.log.sieve import LogSieve
    from gonogo.evidence.log.source import read_chunks, read_whole

    sieve = LogSieve(GENERIC_ERROR_WORDS, words)
    room = max(ROOM // max(len(sources), 1), 1 << 14)
    lines: list[LogLine] = []
    facts = []
    dumps: list[FlightRecorderDump] = []
    for source in sources:
        size = 0

        def count_bytes(additional_bytes: int) -> None:
            nonlocal size
            size += additional_bytes
            on_bytes(additional_bytes)

        if source.is_flight_dump:
            data = read_whole(source, MAX_BYTES)
            if (dump := parse_flight_recorder_dump(source.label, data)) is not None:
                dumps.append(dump)
                count_bytes(len(data))
                facts.append(LogFileInfo(source.label, size, 0))
                continue
        kept = sieve.keep_relevant_parts(read_chunks(source, count_bytes), room)
        read = parse_error_file if source.is_error_file else clean_lines
        lines += read(source.label, source.rank, kept.parts)
        facts.append(LogFileInfo(source.label, size, kept.lines, kept.dropped_bytes))
    return FailureLog(lines, known_setup, tuple(facts), tuple(sorted(dumps, key=lambda dump: dump.rank)))


def _merge_errors(lines: Sequence[LogLine]) -> Iterator[LoggedError]:
    channels: dict[tuple[str, int | None, str | None], list[LogLine]] = defaultdict(list)
    for line in lines:
        channels[line.path, line.rank, line.node].append(line)
    order = {(line.path, line.number): index for index, line in reversed(list(enumerate(lines)))}
    raised = [one for channel in channels.values() for one in parse_tracebacks(channel)]
    raised.sort(key=lambda one: order[one.at.path, one.at.number])
    same: dict[tuple[object, ...], list[RaisedError]] = {}
    for one in raised:
        key = _error_identity(one)
        if key in same or len(same) < MAX_ERRORS:
            same.setdefault(key, []).append(one)
    for group in same.values():
        first = max(group[:8], key=lambda one: len(one.frames))
        ranks = tuple(sorted({one.at.rank for one in group if one.at.rank is not None}))
        times: dict[int, float] = {}
        for one in group:
            if one.at.rank is not None and one.at.time is not None:
                times[one.at.rank] = min(times.get(one.at.rank, one.at.time), one.at.time)
        yield LoggedError(first, role_of_error(first), ranks, len(group), tuple(sorted(times.items())))


_NUMBERS_PATTERN = lazy_compile(r"\d+(?:\.\d+)?")


def _error_identity(exception: RaisedError) -> tuple[object, ...]:
    """A key that is the same for one exception on several ranks, though addresses, devices and sizes may differ."""
    message = _NUMBERS_PATTERN.sub("#", exception.message.partition("\n")[0])[:300]
    return exception.qualified, message or (exception.frames[-1:] if not exception.qualified else "")


def parse_error_file(path: str, rank: int | None, parts: Iterable[Part]) -> list[LogLine]:
    """The lines of the traceback in an error file, numbered from 1; the file's own lines if it contains none."""
    kept = list(parts)
    try:
        message: Any = json.loads(b"\n".join(part.data for part in kept).decode("utf-8", "replace"))["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return clean_lines(path, rank, kept)
    stack_text, time = message, None
    if isinstance(message, dict):
        extra = message.get("extraInfo")
        extra = extra if isinstance(extra, dict) else {}
        stack_text = extra.get("py_callstack") or message.get("message")
        time = _parse_timestamp(extra.get("timestamp"))
    lines = clean_lines(path, rank, [Part(1, str(stack_text or "").encode("utf-8", "replace"))])
    return [LogLine(path, line.number, line.text[:MAX_LINE_LENGTH], line.rank, line.node, time) for line in lines]


def _parse_timestamp(stack_text: Any) -> float | None:
    try:
        return float(stack_text)
    except (TypeError, ValueError):
        return None
