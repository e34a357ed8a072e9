"""What a rank did event by event: recorded only where a file for a viewer is asked for.

Its clock counts operators, since a virtual accelerator has none. Tables are rows of 64-bit numbers, one after another:
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
"""What an allocator does, by the names of PyTorch's snapshot; ``free`` is both of its events of that."""
NONE = -1
"""No stack, no detail."""


class StackFrame(msgspec.Struct, frozen=True, array_like=True):
    """A Python frame."""

    filename: str
    line: int
    name: str


class SegmentBlock(msgspec.Struct, frozen=True, array_like=True):
    """A part of a segment as the program left it. Bytes."""

    address: int
    size: int
    requested: int
    live: bool


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """What an allocator had from the driver in the end, in one piece."""

    stream: int
    is_small: bool
    is_expandable: bool
    blocks: tuple[SegmentBlock, ...]


class DeviceEvents(msgspec.Struct):
    """What one device's allocator did, and its segments in the end."""

    device: str
    table: bytes
    segments: list[Segment]

    def rows(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        """(action, address, bytes, stack, clock, stream) of each event; an ``oom`` has the bytes left as address."""
        numbers = array("q", self.table)
        return zip(*[iter(numbers)] * 6, strict=True)


class RankTrace(msgspec.Struct):
    """All events of one rank."""

    rank: int
    clock: int
    """Operators in all."""
    names: list[str]
    details: list[dict[str, int | str]]
    table: bytes
    stacks: list[list[StackFrame]]
    """Innermost frame first, as in PyTorch's snapshot."""
    devices: list[DeviceEvents]

    def spans(self) -> Iterator[tuple[int, int, int, int, int]]:
        """(track, begin, end, name, detail): tracks are :data:`TRACKS`, the others numbers of the lists above."""
        numbers = array("q", self.table)
        return zip(*[iter(numbers)] * 5, strict=True)
