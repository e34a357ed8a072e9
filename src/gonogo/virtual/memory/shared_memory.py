"""What the program's own tensors hold in /dev/shm: those that it shares with other processes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from gonogo.virtual.memory.tracking import Cell

_PAGE_BYTES = 4096


class SharedMemory:
    """Counts the storages in shared memory, each until it is deleted."""

    held: ClassVar[weakref.WeakSet[Cell]] = weakref.WeakSet()
    live: ClassVar[int] = 0
    peak: ClassVar[int] = 0

    @classmethod
    def add(cls, cell: Cell) -> None:
        """Move a storage of the host into shared memory."""
        if cell not in cls.held and cell.nbytes:
            nbytes = -(-cell.nbytes // _PAGE_BYTES) * _PAGE_BYTES  # each is a file of its own
            cls.held.add(cell)
            cls.live += nbytes
            cls.peak = max(cls.peak, cls.live)
            weakref.finalize(cell, cls._remove, nbytes)

    @classmethod
    def _remove(cls, nbytes: int) -> None:
        cls.live -= nbytes
