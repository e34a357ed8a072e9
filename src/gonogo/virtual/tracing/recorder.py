"""Records events in tables of integers, with names, details and stacks interned."""

from __future__ import annotations

import sys
import threading
from array import array
from types import CodeType, FrameType

from gonogo.evidence.rehearsal import trace
from gonogo.evidence.rehearsal.trace import ACTIONS, NONE, TRACKS, DeviceEvents, RankTrace, StackFrame
from gonogo.virtual.memory.blocks import Block
from gonogo.virtual.memory.caching_allocator import CachingAllocator
from gonogo.virtual.protocol.encoding import messagepack_bytes
from gonogo.virtual.stack import OURS

PHASES, MODULES, OPERATORS, COLLECTIVES = range(len(TRACKS))
_ACTION_NUMBERS = {name: number for number, name in enumerate(ACTIONS)}
_IGNORED_PATH_PREFIXES = ("<frozen", "<string>")


class Recorder:
    """The events of one rank. ``clock`` counts operators, and is advanced by the dispatch mode."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.clock = 0
        self.spans = array("q")
        self._names: dict[str, int] = {}
        self._details: dict[tuple[tuple[str, int | str], ...], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._described: list[list[StackFrame]] = []
        self._codes: list[CodeType] = []
        """Keeps code objects alive, since their ids are part of the keys of stacks."""
        self._devices: dict[str, tuple[CachingAllocator, array[int]]] = {}
        self._open: list[tuple[int, int]] = []
        """(start, name) of the modules whose forward is running, outermost first."""
        self._in_backward: tuple[int, int] | None = None
        self._phase = (0, "load", 0)
        self.thread = threading.get_ident()
        """Id of the main thread; other threads have no tracks."""

    @property
    def is_other_thread(self) -> bool:
        """True if called from a thread other than the main one."""
        return threading.get_ident() != self.thread

    def intern_name(self, text: str) -> int:
        """The number under which a name is stored in the trace."""
        return self._names.setdefault(text, len(self._names))

    def intern_detail(self, **what: int | str) -> int:
        """The number under which an event's details are stored in the trace."""
        return self._details.setdefault(tuple(what.items()), len(self._details))

    # -- phases and modules -------------------------------------------------------------------------------------------

    def enter_phase(self, name: str, step: int) -> None:
        """Switch to a phase."""
        began, before, before_step = self._phase
        if (before, before_step) == (name, step):
            return
        self.spans.extend((PHASES, began, self.clock, self.intern_name(before), self.intern_detail(step=before_step)))
        self._phase = (self.clock, name, step)
        if not self._open:
            self._end_backward()

    def enter_module(self, path: str) -> None:
        """Start the span of a module's forward."""
        self._open.append((self.clock, self.intern_name(path)))

    def leave_modules(self, depth: int) -> None:
        """End the spans of all running modules except the outermost ``depth``."""
        while len(self._open) > depth:
            began, name = self._open.pop()
            self.spans.extend((MODULES, began, self.clock, name, NONE))

    def enter_backward(self, path: str) -> None:
        """Start the span of a module's backward, ending the previous one's."""
        name = self.intern_name(f"{path} (backward)")
        if self._in_backward is None or self._in_backward[1] != name:
            self._end_backward()
            self._in_backward = (self.clock, name)

    def _end_backward(self) -> None:
        if self._in_backward is not None:
            began, name = self._in_backward
            self.spans.extend((MODULES, began, self.clock, name, NONE))
            self._in_backward = None

    # -- memory -------------------------------------------------------------------------------------------------------

    def register_device(self, name: str, allocator: CachingAllocator) -> array[int]:
        """Register a device's allocator; returns the array for its events."""
        rows: array[int] = array("q")
        self._devices[name] = (allocator, rows)
        return rows

    def allocator_event(
        self, action: str, address: int, nbytes: int, stack: int = NONE, stream: int = 0
    ) -> tuple[int, ...]:
        """An allocator event as a row of integers."""
        return _ACTION_NUMBERS[action], address, nbytes, stack, self.clock, stream

    def current_stack(self) -> int:
        """The number of the current stack."""
        frame: FrameType | None = sys._getframe(2)
        key: list[int] = []
        add = key.append
        while frame is not None:
            add(id(frame.f_code))
            add(frame.f_lasti)
            frame = frame.f_back
        known = tuple(key)
        number = self._stacks.get(known)
        if number is None:
            number = self._stacks[known] = len(self._described)
            self._described.append(self._describe_stack(sys._getframe(2)))
        return number

    def _describe_stack(self, frame: FrameType | None) -> list[StackFrame]:
        frames = []
        while frame is not None:
            code = frame.f_code
            self._codes.append(code)
            path = code.co_filename
            if not path.startswith((OURS, *_IGNORED_PATH_PREFIXES)) and not path.endswith("runpy.py"):
                frames.append(StackFrame(path, frame.f_lineno or 0, code.co_name))
            frame = frame.f_back
        return frames

    # -- the end ------------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The whole trace (:class:`RankTrace`) as MessagePack, with all open spans ended."""
        self.leave_modules(0)
        self._end_backward()
        began, phase, step = self._phase
        self.spans.extend((PHASES, began, self.clock, self.intern_name(phase), self.intern_detail(step=step)))
        self._phase = (self.clock, phase, step)
        trace = RankTrace(
            rank=self.rank,
            clock=self.clock,
            names=list(self._names),
            details=[dict(detail) for detail in self._details],
            table=self.spans.tobytes(),
            stacks=self._described,
            devices=[
                DeviceEvents(name, rows.tobytes(), segments_of(allocator))
                for name, (allocator, rows) in self._devices.items()
            ],
        )
        return messagepack_bytes(trace)


def segments_of(allocator: CachingAllocator) -> list[trace.Segment]:
    """The segments sorted by address; for an expandable one, each mapped range separately."""
    found = []
    for stream, head, expandable in allocator.segments():
        pieces: list[list[Block]] = [[]]
        block: Block | None = head
        while block is not None:
            if block.mapped:
                pieces[-1].append(block)
            elif pieces[-1]:
                pieces.append([])
            block = block.next
        found += [_describe_segment(stream, blocks, expandable) for blocks in pieces if blocks]
    return sorted(found, key=lambda segment: segment.blocks[0].address)


def _describe_segment(stream: int, blocks: list[Block], is_expandable: bool) -> trace.Segment:
    described = tuple(
        trace.SegmentBlock(block.address, block.size, block.requested if block.live else 0, block.live)
        for block in blocks
    )
    return trace.Segment(stream, blocks[0].pool.is_small, is_expandable, described)
