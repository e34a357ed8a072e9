"""The driver below a caching allocator, which hands out addresses and memory up to a limit. Sizes are bytes."""

from __future__ import annotations

from collections.abc import Callable

from gonogo.virtual.memory.blocks import BlockPool, Totals

FIRST_ADDRESS = 0x7F00_0000_0000
PAGE = 2 << 20
"""What segments are aligned to."""


class Driver:
    """Hands out memory of one device, and counts what each pool has of it."""

    def __init__(self, capacity_bytes: int, limit: int, every: Totals) -> None:
        """``capacity_bytes``: what there is; ``limit``: what may be taken of it; ``every``: the totals of all pools."""
        self.capacity_bytes = capacity_bytes
        self.limit = limit
        self.allocations = self.frees = 0
        self.on_segment: Callable[[str, int, int], None] | None = None
        """Told of what becomes of segments: the event's name in PyTorch's snapshot, address, bytes."""
        self._every = every
        self._next_address = FIRST_ADDRESS

    def reserve_addresses(self, size: int, alignment: int = PAGE) -> int:
        """The first of ``size`` addresses that were never handed out before."""
        address = -(-self._next_address // alignment) * alignment
        self._next_address = address + size
        return address

    def take(self, pool: BlockPool, size: int, *, segment_count: int) -> bool:
        """Take ``size`` bytes for ``pool``; False where there are not so many."""
        if self._every.reserved_bytes.current + size > self.limit:
            return False
        self.allocations += 1
        self.count(pool, size, segment_count)
        return True

    def give_back(self, pool: BlockPool, size: int, *, segment_count: int) -> None:
        """Give ``size`` bytes of ``pool`` back."""
        self.frees += 1
        self.count(pool, -size, -segment_count)

    def note(self, event: str, address: int, size: int) -> None:
        """Tell whoever follows the segments."""
        if self.on_segment is not None:
            self.on_segment(event, address, size)

    def count(self, pool: BlockPool, size: int, segment_count: int) -> None:
        """Count what a pool has reserved, be there room or not."""
        for totals in (pool.totals, self._every):
            totals.reserved_bytes.add(size)
            totals.segment.add(segment_count)
