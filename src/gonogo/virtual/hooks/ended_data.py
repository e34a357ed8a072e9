"""The end of a program's data, brought about by the rehearsal, and what the program fails with because of it."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Iterator
from types import CodeType

from gonogo.evidence.script.flows.loop_tests import loops_around
from gonogo.virtual.hooks.advanced_loops import parse_file

_Position = tuple[CodeType, int]
"""A code object and a line in it."""


class EndedData:
    """Where the rehearsal last raised StopIteration to end the program's data."""

    def __init__(self) -> None:
        self.exception: StopIteration | None = None
        self.empty_passes = 0
        """Passes over the data that were given no batch."""
        self._generators: set[_Position] = set()
        self._readers: list[_Position] = []
        """The callers that have been given no batch in the last pass, innermost first; none once there was a batch."""

    def stop_after(self, given: int) -> StopIteration:
        """The exception that ends the data after ``given`` batches of this pass."""
        self.exception = StopIteration()
        callers = list(_callers())
        self._generators = {above for (code, _), above in itertools.pairwise(callers) if _is_generator(code)}
        self._readers = [] if given else callers
        self.empty_passes += not given
        return self.exception

    def record_batch_given(self) -> None:
        """Note that the program was given a batch."""
        self._readers.clear()

    def is_end_of_data(self, error: BaseException, *, enough: bool) -> bool:
        """Whether an exception is the StopIteration that ended the data, or one that Python made of it.

        A loop that counts its steps calls ``next`` and is ended by the StopIteration; if the program iterates through
        a generator of its own, Python raises a new StopIteration at the same call, or a RuntimeError.
        """
        end = error.__cause__ if _ended_in_generator(error) else error
        if self.exception is not None and end is self.exception:
            return True
        return enough and type(end) is StopIteration and _raise_position(end) in self._generators

    def is_due_to_empty_pass(self, error: BaseException) -> bool:
        """Whether an exception was raised in the body of a loop that was to be given batches, and was given none.

        Loaders of a program's own, and of older libraries, hand out ``None`` where there is no first batch.
        """
        raised = list(_traceback_positions(error))
        for code, line in self._readers:
            lines = _innermost_loop(code, line)
            if any(where is code and at in lines for where, at in raised):
                return True
            if lines and not _is_generator(code):  # this one has been read; loops around it do other things as well
                return False
        return False


def _callers() -> Iterator[_Position]:
    """The positions of the running calls, from the caller of :meth:`EndedData.stop_after` outward."""
    frame = sys._getframe(2)
    while frame is not None:
        yield frame.f_code, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]


def _is_generator(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_GENERATOR)


def _innermost_loop(code: CodeType, line: int) -> range:
    """The lines of the innermost loop around a line of the same function; none if there is no loop."""
    tree = parse_file(code.co_filename)
    loops = loops_around(tree, line) if tree is not None else []
    return range(loops[0].lineno, (loops[0].body[-1].end_lineno or line) + 1) if loops else range(0)


def _ended_in_generator(error: BaseException) -> bool:
    """Whether Python converted it from a StopIteration that left a generator (PEP 479)."""
    return type(error) is RuntimeError and isinstance(error.__cause__, StopIteration)


def _traceback_positions(error: BaseException) -> Iterator[_Position]:
    entry = error.__traceback__
    while entry is not None:
        yield entry.tb_frame.f_code, entry.tb_lineno
        entry = entry.tb_next


def _raise_position(error: BaseException) -> _Position | None:
    positions = list(_traceback_positions(error))
    return positions[-1] if positions else None
