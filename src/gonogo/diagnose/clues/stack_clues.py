"""Where a hung run was: stacks in a log without an exception (``py-spy dump``, faulthandler, a launcher's dump)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from gonogo.evidence.log.code_owner import code_place
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.traceback import LogFrame
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import CodePlace, FailureFacts, Message, RaisedException
from gonogo.finding.log_answer import Clue, CluePlace

_FRAME_PATTERN = Pattern(
    r'File "[^"]{1,400}", line \d+,? in [\w.<>]+|(?:^|\s)[\w.<>]{1,120} \((?:[\w.-]*/)*[\w.-]+\.py:\d+\)\s*$'
)
_FRAME_PARTS_PATTERN = lazy_compile(r'File "([^"]{1,400})", line (\d{1,7}),? in ([\w.<>]{1,120})')
_PY_SPY_PARTS_PATTERN = lazy_compile(r"(?:^|\s)([\w.<>]{1,120}) \(([^()\s]{1,400}\.py):(\d{1,7})\)\s*$")
_DUMP_PATTERN = Pattern(r"most recent call first|Stack \(most recent call last|^\s*Thread \S{1,40} \((?:idle|active)")
_INNERMOST_FIRST_PATTERN = lazy_compile(r"most recent call first")
_MAX_FRAMES = 400
_MAX_STACKS = 16
_MAX_CLUES = 2
_PYTHONS_OWN = sys.stdlib_module_names
"""py-spy writes ``threading.py`` without a folder."""
_MAX_LINE_GAP = 3
"""Frames further apart than this number of lines belong to different stacks."""


class Stack(NamedTuple):
    """A stack, outermost first, of ``rank`` if the log says so; ``at`` is its first line."""

    rank: int | None
    frames: tuple[CodePlace, ...]
    at: LogLine


def stack_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """The function of each stack that says most: the innermost that is neither Python's nor torch's."""
    seen: set[tuple[str, int]] = set()
    for stack in stacks_of(log, facts):
        shown = _telling_frame(stack)
        if shown is None or (shown.path, shown.line) in seen or len(seen) >= _MAX_CLUES:
            continue
        seen.add((shown.path, shown.line))
        yield Clue(
            translated(
                "{who} was in {function} ({file}:{line}){package} when its stack was written: look there for what only "
                "this rank does, and for what it waits for (another rank, a server, a file)"
            ).format(
                who=translated("a rank") if stack.rank is None else Text(f"rank {stack.rank}", f"rank {stack.rank} "),
                function=shown.function,
                file=shown.path.rpartition("/")[2],
                line=shown.line,
                package=Text(f" of {shown.package}", f"（{shown.package}）") if shown.package else Text("", ""),
            ),
            (CluePlace(stack.at.path, stack.at.number),),
        )


def hung_in(log: FailureLog, facts: FailureFacts) -> RaisedException | None:
    """The first telling stack in the form of an exception without a message, to tell what its code is for."""
    for stack in stacks_of(log, facts):
        if _telling_frame(stack) is not None:
            return RaisedException("", Message(""), stack.frames, stack.at.path, stack.at.number)
    return None


def stacks_of(log: FailureLog, facts: FailureFacts) -> tuple[Stack, ...]:
    """The stacks of a log in which no exception was raised; what precedes a cut-off exception is none."""
    if facts.chain or not (facts.collectives or log.says(_DUMP_PATTERN)):
        return ()
    return tuple(islice(_read_stacks(log), _MAX_STACKS))


def _read_stacks(log: FailureLog) -> Iterator[Stack]:
    lines: list[tuple[LogLine, LogFrame]] = []
    innermost_first = False
    for found in islice(log.find_all(_FRAME_PATTERN), _MAX_FRAMES):
        frame, reverse = _parsed(log, found.line, found.text)
        if frame is None:
            continue
        if lines and not _follows(lines[-1][0], found.line):
            yield _stack(log, lines, innermost_first)
            lines = []
        if not lines:
            before = log.lines_before(found.line, 1)
            innermost_first = reverse or any(_INNERMOST_FIRST_PATTERN.search(line.text) for line in before)
        lines.append((found.line, frame))
    if lines:
        yield _stack(log, lines, innermost_first)


def _parsed(log: FailureLog, line: LogLine, text: str) -> tuple[LogFrame | None, bool]:
    """A frame, and whether its form lists the innermost first."""
    if parts := _FRAME_PARTS_PATTERN.search(text):
        after = log.lines_after(line, 1)
        code = after[0].text.strip() if after and not _FRAME_PARTS_PATTERN.search(after[0].text) else ""
        return LogFrame(parts.group(1), int(parts.group(2)), parts.group(3), code[:400]), False
    if parts := _PY_SPY_PARTS_PATTERN.search(text):
        return LogFrame(parts.group(2), int(parts.group(3)), parts.group(1)), True
    return None, False


def _follows(one: LogLine, other: LogLine) -> bool:
    return one.path == other.path and one.rank == other.rank and 0 < other.number - one.number <= _MAX_LINE_GAP


def _stack(log: FailureLog, lines: list[tuple[LogLine, LogFrame]], innermost_first: bool) -> Stack:
    places = [code_place(frame, log.setup.version_texts) for _, frame in lines]
    return Stack(lines[0][0].rank, tuple(reversed(places)) if innermost_first else tuple(places), lines[0][0])


def _telling_frame(stack: Stack) -> CodePlace | None:
    return next(
        (
            frame
            for frame in reversed(stack.frames)
            if frame.owner != "python"
            and frame.package != "torch"
            and frame.path.removesuffix(".py") not in _PYTHONS_OWN
        ),
        None,
    )
