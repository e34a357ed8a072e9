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
_MAIN_THREAD = '"MainThread"'
_MAX_FRAMES = 400
_MAX_STACKS = 16
_MAX_CLUES = 2
_PYTHONS_OWN = sys.stdlib_module_names
"""py-spy writes ``threading.py`` and ``multiprocessing/synchronize.py`` without the folder of Python."""
_MAX_LINE_GAP = 3
"""Frames further apart than this number of lines belong to different stacks."""


class Stack(NamedTuple):
    """A stack, outermost first, of ``rank`` if the log says so; ``at`` is its first line.

    ``thread`` is the line above it that names the thread.
    """

    rank: int | None
    frames: tuple[CodePlace, ...]
    at: LogLine
    thread: str = ""


def stack_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """The function of each stack that says most: the innermost that is neither Python's nor torch's.

    Stacks in different functions tell the hang: these processes wait for each other, or for what one of them skipped.
    """
    shown: dict[tuple[str, int], tuple[Stack, CodePlace]] = {}
    for stack in stacks_of(log, facts):
        if (frame := _telling_frame(stack)) is not None:
            shown.setdefault((frame.path, frame.line), (stack, frame))
    stacks = list(shown.values())
    pair = next(_in_different_calls(stacks), None)
    if pair is not None:
        (one, first), (other, second) = pair
        yield Clue(
            translated(
                "the stacks are in different calls: {one} in {first}, {other} in {second}. They wait for each other: "
                "look for what makes only some of them enter the one or the other (a branch, a pipeline stage, a batch "
                "or a kind of input that only some have)"
            ).format(
                one=_who(one),
                first=_called(first),
                other=Text("another", "另一个") if other.rank is None else _who(other),
                second=_called(second),
            ),
            (CluePlace(one.at.path, one.at.number), CluePlace(other.at.path, other.at.number)),
            decides=True,
        )
        return
    for stack, frame in stacks[:_MAX_CLUES]:
        yield Clue(
            translated(
                "{who} was in {function} when its stack was written: look there for what only this rank does, and for "
                "what it waits for (another rank, a process that died, a server, a file)"
            ).format(who=_who(stack), function=_called(frame)),
            (CluePlace(stack.at.path, stack.at.number),),
        )


def _in_different_calls(
    stacks: list[tuple[Stack, CodePlace]],
) -> Iterator[tuple[tuple[Stack, CodePlace], tuple[Stack, CodePlace]]]:
    """The first stack with each that is of another process and in another function."""
    for other in stacks[1:]:
        if other[1].function != stacks[0][1].function and _of_another_process(stacks[0][0], other[0]):
            yield stacks[0], other


def _of_another_process(one: Stack, other: Stack) -> bool:
    """Whether two stacks are of two processes, not of two threads of one."""
    if one.rank is not None and other.rank is not None:
        return one.rank != other.rank
    return _MAIN_THREAD in one.thread and _MAIN_THREAD in other.thread


def _who(stack: Stack) -> Text:
    return translated("a rank") if stack.rank is None else Text(f"rank {stack.rank}", f"rank {stack.rank} ")


def _called(frame: CodePlace) -> Text:
    place = f"{frame.function} ({frame.path.rpartition('/')[2]}:{frame.line})"
    return Text(f"{place} of {frame.package}", f"{place}（{frame.package}）") if frame.package else Text(place, place)


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
    innermost_first, thread = False, ""
    for found in islice(log.find_all(_FRAME_PATTERN), _MAX_FRAMES):
        frame, reverse = _parsed(log, found.line, found.text)
        if frame is None:
            continue
        before = log.lines_before(found.line, 1)
        if lines and (
            not _follows(lines[-1][0], found.line) or any(_DUMP_PATTERN.search(line.text) for line in before)
        ):
            yield _stack(log, lines, innermost_first, thread)
            lines = []
        if not lines:
            thread = before[-1].text if before else ""
            innermost_first = reverse or any(_INNERMOST_FIRST_PATTERN.search(line.text) for line in before)
        lines.append((found.line, frame))
    if lines:
        yield _stack(log, lines, innermost_first, thread)


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


def _stack(log: FailureLog, lines: list[tuple[LogLine, LogFrame]], innermost_first: bool, thread: str) -> Stack:
    places = [code_place(frame, log.setup.version_texts) for _, frame in lines]
    frames = tuple(reversed(places)) if innermost_first else tuple(places)
    return Stack(lines[0][0].rank, frames, lines[0][0], thread)


def _telling_frame(stack: Stack) -> CodePlace | None:
    return next(
        (
            frame
            for frame in reversed(stack.frames)
            if frame.owner != "python"
            and frame.package != "torch"
            and frame.path.removesuffix(".py").partition("/")[0] not in _PYTHONS_OWN
        ),
        None,
    )
