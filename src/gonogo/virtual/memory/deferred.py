"""Storages of compiled code, which count only once it is known what the compiled code allocates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

Cell = Any
DeviceRecord = Any
MemoryRecord = Any
"""Of ``tracking.py``, which imports this module."""
Event = tuple[int, int]
"""(number of a buffer, bytes that are allocated for it, or -1 where it is freed)."""


class DeferredStorages:
    """What the code allocates and frees on a device as written; none of it counts yet."""

    def __init__(self, record: DeviceRecord) -> None:
        self.record = record
        self.events: list[Event] = []
        self._cells: list[ref[Cell]] = []

    def allocate(self, cell: Cell) -> int:
        """Note an allocation; returns the address by which the free is recognized, below zero."""
        self.events.append((len(self._cells), cell.nbytes))
        self._cells.append(ref(cell))
        return -len(self._cells)

    def free(self, cell: Cell) -> None:
        """Note that a storage was freed."""
        self.events.append((-cell.address - 1, -1))

    def live(self) -> list[Cell]:
        """The storages that still exist."""
        found = [cell() for cell in self._cells]
        return [cell for at, cell in enumerate(found) if cell is not None and cell.address == -at - 1]

    def extra_bytes(self) -> int:
        """By how much the code, as written, exceeds what is left when it has run."""
        sizes: dict[int, int] = {}
        live = peak = 0
        for buffer, nbytes in self.events:
            live += nbytes if nbytes >= 0 else -sizes[buffer]
            sizes[buffer] = max(nbytes, 0)
            peak = max(peak, live)
        return peak - live

    def count_live(self) -> None:
        """Count what exists from now on."""
        for cell in self.live():
            cell.address = self.record.count_allocation(cell)


@contextmanager
def deferred_storages(memory: MemoryRecord, deferred: list[DeferredStorages]) -> Iterator[None]:
    """Let nothing count on accelerators that is allocated inside, but put it into ``deferred``, to be counted later."""
    records = [record for record in memory.devices.values() if record.allocator is not None]
    deferred += map(DeferredStorages, records)
    try:
        for storages in deferred:
            storages.record.deferred = storages
        yield
    finally:
        for record in records:
            record.deferred = None


def replay(events: list[Event], memory: MemoryRecord, device: object) -> None:
    """Allocate and free buffers in this order; what is left is freed in the end."""
    held: dict[int, Cell] = {}
    for buffer, nbytes in events:
        if nbytes < 0:
            held.pop(buffer, None)
        else:
            held[buffer] = memory.new_cell(device, nbytes)
