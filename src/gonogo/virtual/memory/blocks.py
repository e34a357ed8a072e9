"""The building blocks of a caching allocator: blocks, pools of free blocks, and its statistics."""

from __future__ import annotations

from bisect import bisect_left, insort

ADDRESS_BITS = 64
ADDRESS_MASK = (1 << ADDRESS_BITS) - 1


class Block:
    """A range of addresses in a segment; ``prev`` and ``next`` are its neighbours in the same segment."""

    __slots__ = ("address", "born", "live", "mapped", "next", "pool", "prev", "requested", "size")

    def __init__(self, address: int, size: int, prev: Block | None, following: Block | None, pool: BlockPool) -> None:
        self.address = address
        self.size = size
        self.prev = prev
        self.next = following
        self.pool = pool
        self.live = False
        self.mapped = True
        """False for an unmapped block, which only expandable segments have."""
        self.requested = 0
        self.born = 0
        """``BlockPool.searches`` when it was freed, from which garbage collection computes its age."""

    @property
    def is_split(self) -> bool:
        """True if other blocks share its segment."""
        return self.prev is not None or self.next is not None


class Stat:
    """One of PyTorch's statistics (c10/core/CachingDeviceAllocator.h, ``Stat``)."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def add(self, amount: int) -> None:
        """Increase by ``amount``, or decrease if it is negative."""
        if amount >= 0:
            self.current += amount
            self.allocated += amount
            if self.current > self.peak:
                self.peak = self.current
        else:
            self.current += amount
            self.freed -= amount

    def memory_stats_entries(self, name: str) -> dict[str, int]:
        """Its four values under the keys of ``torch.cuda.memory_stats``."""
        return {f"{name}.{key}": getattr(self, key) for key in ("current", "peak", "allocated", "freed")}


class Totals:
    """The statistics of one pool, or of all pools together."""

    __slots__ = (
        "allocated_bytes",
        "allocation",
        "requested_bytes",
        "reserved_bytes",
        "segment",
        "split",
        "split_bytes",
    )

    def __init__(self) -> None:
        self.allocation = Stat()
        self.allocated_bytes = Stat()
        self.requested_bytes = Stat()
        self.reserved_bytes = Stat()
        self.segment = Stat()
        self.split = Stat()
        self.split_bytes = Stat()

    def by_name(self) -> dict[str, Stat]:
        """The statistics by PyTorch's names. *Active* equals allocated, since no stream holds a freed block any
        longer."""
        return {
            "active": self.allocation,
            "active_bytes": self.allocated_bytes,
            "allocated_bytes": self.allocated_bytes,
            "allocation": self.allocation,
            "inactive_split": self.split,
            "inactive_split_bytes": self.split_bytes,
            "requested_bytes": self.requested_bytes,
            "reserved_bytes": self.reserved_bytes,
            "segment": self.segment,
        }


class BlockPool:
    """The free blocks of one stream and one size class, sorted by (size, address)."""

    __slots__ = ("free", "granularity", "is_small", "keys", "least_remainder", "searches", "totals", "unmapped")

    def __init__(self, *, is_small: bool, granularity: int, min_remainder: int, totals: Totals) -> None:
        self.is_small = is_small
        self.granularity = granularity
        """Page size in bytes of an expandable segment."""
        self.least_remainder = min_remainder
        """Minimum remainder for which a block is split."""
        self.totals = totals
        self.free: dict[int, Block] = {}
        self.keys: list[int] = []
        self.unmapped: dict[int, Block] = {}
        self.searches = 0

    def insert(self, block: Block) -> None:
        """Add a free block."""
        address = block.address
        self.free[address] = block
        insort(self.keys, block.size << ADDRESS_BITS | address)
        block.born = self.searches

    def remove(self, block: Block) -> None:
        """Remove a free block."""
        keys = self.keys
        del keys[bisect_left(keys, block.size << ADDRESS_BITS | block.address)]
        del self.free[block.address]

    def merge(self, block: Block) -> int:
        """Merge ``block`` with its free neighbours in the same state; returns how many were merged."""
        count = 0
        other = block.prev
        if other is not None and not other.live and other.mapped is block.mapped:
            self._remove_block(other)
            block.address = other.address
            block.size += other.size
            block.prev = other.prev
            if block.prev is not None:
                block.prev.next = block
            count = 1
        other = block.next
        if other is not None and not other.live and other.mapped is block.mapped:
            self._remove_block(other)
            block.size += other.size
            block.next = other.next
            if block.next is not None:
                block.next.prev = block
            count += 1
        return count

    def _remove_block(self, block: Block) -> None:
        if block.mapped:
            self.remove(block)
        else:
            del self.unmapped[block.address]

    def in_order(self) -> list[Block]:
        """The free blocks, smallest first, as a new list."""
        return [self.free[key & ADDRESS_MASK] for key in self.keys]
