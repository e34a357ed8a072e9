"""A rank's events one by one, recorded only if a file for a trace viewer is requested.

The clock counts operators, since a virtual accelerator has no time. Tables are rows of 64-bit integers, concatenated:
a rehearsal has millions of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import msgspec

TRACKS = ("phases", "modules", "operators", "collectives")
ACTIONS = (
    "alloc", "free", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom",
)  # fmt: skip
"""Allocator actions by their names in PyTorch's memory snapshot; ``free`` stands for both of its free events."""
NONE = -1
"""Index for no stack or no detail."""


class StackFrame(msgspec.Struct, frozen=True, array_like=True):
    """A Python frame, in the order of fields that PyTorch's memory snapshot uses."""

    filename: str
    line: int
    name: str


class SegmentBlock(msgspec.Struct, frozen=True, array_like=True):
    """A part of a segment at the program's end. Sizes are in bytes."""

    address: int
    size: int
    requested: int
    live: bool


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """One contiguous range that the allocator had obtained from the driver at the program's end."""

    stream: int
    is_small: bool
    is_expandable: bool
    blocks: tuple[SegmentBlock, ...]


class DeviceEvents(msgspec.Struct):
    """The actions of one device's allocator, and its segments at the end."""

    device: str
    table: bytes
    segments: list[Segment]

    def event_rows(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        """(action, address, bytes, stack, clock, stream) of each event; for ``oom``, address is the free bytes."""
        numbers = array("q", self.table)
        return zip(*[iter(numbers)] * 6, strict=True)


class RankTrace(msgspec.Struct):
    """All events of one rank."""

    rank: int
    clock: int
    """Total number of operators."""
    names: list[str]
    details: list[dict[str, int | str]]
    table: bytes
    stacks: list[list[StackFrame]]
    """Innermost frame first, as in PyTorch's snapshot."""
    devices: list[DeviceEvents]

    def spans(self) -> Iterator[tuple[int, int, int, int, int]]:
        """(track, begin, end, name, detail) of each event.

        ``track``, ``name`` and ``detail`` are indices into :data:`TRACKS` and into the lists above.
        """
        numbers = array("q", self.table)
        return zip(*[iter(numbers)] * 5, strict=True)
