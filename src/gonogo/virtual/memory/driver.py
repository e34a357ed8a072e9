"""The driver below a caching allocator, which provides addresses and memory up to a limit. Sizes are in bytes."""

from __future__ import annotations

from collections.abc import Callable

from gonogo.virtual.memory.blocks import BlockPool, Totals

FIRST_ADDRESS = 0x7F00_0000_0000
PAGE = 2 << 20
"""Alignment of segments."""


class MemoryDriver:
    """Provides the memory of one device, and counts what each pool has reserved."""

    def __init__(self, capacity_bytes: int, limit: int, every: Totals) -> None:
        """``capacity_bytes``: the device's memory; ``limit``: how much may be reserved; ``every``: totals of all
        pools."""
        self.capacity_bytes = capacity_bytes
        self.limit = limit
        self.allocations = self.frees = 0
        self.on_segment: Callable[[str, int, int], None] | None = None
        """Called for each segment event: its name in PyTorch's memory snapshot, address, bytes."""
        self._every = every
        self._next_address = FIRST_ADDRESS

    def reserve_addresses(self, size: int, alignment: int = PAGE) -> int:
        """The first of ``size`` addresses that were never used before."""
        address = -(-self._next_address // alignment) * alignment
        self._next_address = address + size
        return address

    def reserve_bytes(self, pool: BlockPool, size: int, *, segment_count: int) -> bool:
        """Reserve ``size`` bytes for ``pool``; returns False if that would exceed the limit."""
        if self._every.reserved_bytes.current + size > self.limit:
            return False
        self.allocations += 1
        self.count_reserved(pool, size, segment_count)
        return True

    def release_bytes(self, pool: BlockPool, size: int, *, segment_count: int) -> None:
        """Release ``size`` bytes of ``pool``."""
        self.frees += 1
        self.count_reserved(pool, -size, -segment_count)

    def report_event(self, event: str, address: int, size: int) -> None:
        """Report a segment event to the listener, if any."""
        if self.on_segment is not None:
            self.on_segment(event, address, size)

    def count_reserved(self, pool: BlockPool, size: int, segment_count: int) -> None:
        """Count reserved bytes and segments of a pool, without checking the limit."""
        for totals in (pool.totals, self._every):
            totals.reserved_bytes.add(size)
            totals.segment.add(segment_count)
