"""A replay of PyTorch's CUDA caching allocator: how much memory a program *reserves*, not only what it uses.

What ``nvidia-smi`` shows, and what a device runs out of, are the segments that the allocator has taken from the
driver. This follows c10/cuda/CUDACachingAllocator.cpp (``DeviceCachingAllocator``) function by function, for one
device, without any memory:

- ``round_size``: blocks are multiples of 512 bytes;
- ``get_pool``: blocks up to 1 MiB live in the small pool, others in the large one; each stream has its own pools;
- ``get_free_block``: the smallest free block that fits, the lowest address among equals;
- ``get_allocation_size``: new segments have 2 MiB (small), 20 MiB (up to 10 MiB), else the size rounded up to 2 MiB;
- ``should_split``: the remainder becomes a block if it has 512 bytes (small) or more than 1 MiB (large);
- ``try_merge_blocks``: adjacent free blocks are merged;
- if the driver has no room for a segment, cached segments are released (``release_cached_blocks``), then it retries.

A freed block that another stream still uses (``record_stream``) is reused at once: a virtual device has no queue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator
from threading import RLock
from typing import NamedTuple

from gonogo.virtual.memory.allocator_settings import AllocatorSettings
from gonogo.virtual.memory.blocks import ADDRESS_BITS, ADDRESS_MASK, Block, BlockPool, Stat, Totals
from gonogo.virtual.memory.driver import MemoryDriver
from gonogo.virtual.memory.expandable_segments import ExpandableSegments
from gonogo.virtual.memory.fixed_segments import SMALL_SEGMENT, SMALL_SIZE, FixedSegments

UNLIMITED = 1 << 62


class AllocatorShortage(NamedTuple):
    """The first allocation that would have raised ``OutOfMemoryError``. All bytes."""

    requested: int
    """The size requested by the program."""
    segment: int
    """The size requested from the driver, which PyTorch's message names ("Tried to allocate …")."""
    allocated: int
    reserved: int
    """Reserved and allocated bytes when the allocation failed, after cached segments were released."""


class CachingAllocator:
    """The allocator of one device. Thread-safe, and safe against a ``free`` from a finalizer during a call.

    ``capacity_bytes``: limit of all segments together; ``settings``: the user's, see :class:`AllocatorSettings`.
    After a :attr:`shortage` it continues as if memory were unlimited.
    """

    def __init__(self, capacity_bytes: int, settings: AllocatorSettings | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.settings = settings or AllocatorSettings()
        self.totals = {"small_pool": Totals(), "large_pool": Totals(), "all": Totals()}
        self.shortage: AllocatorShortage | None = None
        self.retries = self.shortages = self.synchronizations = 0
        self._oversize_allocations = Stat()
        self._all = self.totals["all"]
        self._pools: dict[int, tuple[BlockPool, BlockPool]] = {}
        self._live: dict[int, Block] = {}
        self._driver = MemoryDriver(capacity_bytes, int(capacity_bytes * self.settings.memory_fraction), self._all)
        self._max_split = self.settings.max_split_bytes
        self._rounds_to_512_only = not self.settings.roundup_divisions
        self._to_next_512 = 511 + self.settings.padding_bytes
        self._fixed = FixedSegments(self._driver, self.settings)
        self._expandable = ExpandableSegments(self._driver) if self.settings.expandable_segments else None
        self._segments = self._expandable or self._fixed
        self._collects = self.settings.garbage_collection_threshold > 0
        self._takes_best_fit = self._max_split is None and self._expandable is None and not self._collects
        self._lock = RLock()
        self._busy = False
        self._returned: deque[int] = deque()

    @property
    def allocated(self) -> int:
        """Bytes in live blocks: ``torch.cuda.memory_allocated()``."""
        return self._all.allocated_bytes.current

    @property
    def reserved(self) -> int:
        """Bytes in segments: ``torch.cuda.memory_reserved()``."""
        return self._all.reserved_bytes.current

    @property
    def peak_allocated(self) -> int:
        """Highest :attr:`allocated` since the start or :meth:`reset_peaks`."""
        return self._all.allocated_bytes.peak

    @property
    def peak_reserved(self) -> int:
        """Highest :attr:`reserved` since the start or :meth:`reset_peaks`."""
        return self._all.reserved_bytes.peak

    def malloc(self, nbytes: int, stream: int = 0) -> int:
        """Allocate; returns the address, which is unique among live blocks. 0 bytes take no block and return 0."""
        if nbytes <= 0:
            return 0
        with self._lock:
            if self._busy:
                # A finalizer run by the garbage collector during a call may allocate: give it its own segment.
                return self._malloc_separately(nbytes, stream)
            self._busy = True
            try:
                while self._returned:
                    self._free(self._returned.popleft())
                return self._malloc(nbytes, stream)
            finally:
                self._busy = False

    def free(self, address: int) -> None:
        """Free a block. Raises ValueError if no block is live at the address."""
        if address == 0:
            return
        with self._lock:
            if self._busy:
                self._returned.append(address)
                return
            self._busy = True
            try:
                self._free(address)
                while self._returned:
                    self._free(self._returned.popleft())
            finally:
                self._busy = False

    def size_of(self, address: int) -> int:
        """Bytes of the live block at ``address``. Raises KeyError if there is none."""
        return self._live[address].size

    def state(self) -> tuple[object, ...]:
        """The state that determines future blocks: the positions of large blocks, and the number of the many small
        ones.

        Small blocks have segments of their own, so their positions can't affect the large ones.
        """
        live = sorted((block.address, block.size) for block in self._live.values() if not block.pool.is_small)
        small = Counter(block.size for block in self._live.values() if block.pool.is_small)
        free = [
            (stream, [(block.address, block.size, block.mapped) for block in pool.in_order()], sorted(pool.unmapped))
            for stream, pools in self._pools.items()
            for pool in pools
            if not pool.is_small
        ]
        limits = (self._driver.limit, self.reserved, self._driver.allocations, self._driver.frees, self.retries)
        return (live, small, free, limits)

    def segments(self) -> Iterator[tuple[int, Block, bool]]:
        """(stream, first block, is expandable) of each segment."""
        streams = {id(pool): stream for stream, pools in self._pools.items() for pool in pools}
        free = [block for pools in self._pools.values() for pool in pools for block in pool.free.values()]
        unmapped = [block for pools in self._pools.values() for pool in pools for block in pool.unmapped.values()]
        for block in (*self._live.values(), *free, *unmapped):
            if block.prev is None:
                yield streams.get(id(block.pool), 0), block, self._expandable is not None

    def empty_cache(self) -> None:
        """``torch.cuda.empty_cache()``: release every segment that is entirely free."""
        with self._lock:
            if not self._busy:
                self._release_cached()

    def set_memory_fraction(self, fraction: float, total_bytes: int) -> None:
        """``torch.cuda.set_per_process_memory_fraction``: limit segments to this fraction of ``total_bytes``."""
        if self.shortage is None:
            self._driver.limit = min(self.capacity_bytes, int(total_bytes * fraction))

    def reset_peaks(self) -> None:
        """``torch.cuda.reset_peak_memory_stats()``."""
        for totals in self.totals.values():
            for stat in totals.by_name().values():
                stat.peak = stat.current
        for stat in (self._oversize_allocations, self._fixed.oversize):
            stat.peak = stat.current

    def memory_stats(self) -> dict[str, int]:
        """``torch.cuda.memory_stats()``: the same keys, in the same (alphabetical) order."""
        stats = {
            "max_split_size": -1 if self._max_split is None else self._max_split,
            "num_alloc_retries": self.retries,
            "num_device_alloc": self._driver.allocations,
            "num_device_free": self._driver.frees,
            "num_ooms": self.shortages,
            "num_sync_all_streams": self.synchronizations,
        }
        for pool, totals in self.totals.items():
            for name, stat in totals.by_name().items():
                stats.update(stat.memory_stats_entries(f"{name}.{pool}"))
        stats.update(self._oversize_allocations.memory_stats_entries("oversize_allocations"))
        stats.update(self._fixed.oversize.memory_stats_entries("oversize_segments"))
        return dict(sorted(stats.items()))

    def _new_pools(self) -> tuple[BlockPool, BlockPool]:
        least = 512 if self._expandable is not None else SMALL_SIZE + 1
        small, large = self.totals["small_pool"], self.totals["large_pool"]
        return (
            BlockPool(is_small=True, granularity=SMALL_SEGMENT, min_remainder=512, totals=small),
            BlockPool(is_small=False, granularity=self.settings.large_segment_bytes, min_remainder=least, totals=large),
        )

    def _malloc(self, nbytes: int, stream: int) -> int:
        size = (nbytes + self._to_next_512) & ~511 if self._rounds_to_512_only else self.settings.round_up(nbytes)
        pools = self._pools.get(stream)
        if pools is None:
            pools = self._pools[stream] = self._new_pools()
        pool = pools[size > SMALL_SIZE]
        keys = pool.keys
        index = bisect_left(keys, size << ADDRESS_BITS)
        if not self._takes_best_fit:
            index = self._find_admissible_block(pool, size, index)
        found = index < len(keys)
        block = (
            pool.free.pop(keys.pop(index) & ADDRESS_MASK) if found else self._allocate_segment_block(pool, size, nbytes)
        )
        return self._take_from_block(pool, block, size, nbytes)

    def _find_admissible_block(self, pool: BlockPool, size: int, index: int) -> int:
        """``get_free_block`` with non-default settings; returns ``len(pool.keys)`` if no block qualifies."""
        pool.searches += 1
        none = len(pool.keys)
        if index == none:
            return none
        if self._expandable is not None:
            index = self._expandable.best_fit(pool, index)
        if self._max_split is not None:
            found = pool.keys[index] >> ADDRESS_BITS
            if size < self._max_split <= found:
                return none
            if size >= self._max_split and found >= size + self.settings.max_non_split_rounding_bytes:
                return none
        return index

    def _take_from_block(self, pool: BlockPool, block: Block, size: int, nbytes: int) -> int:
        """``alloc_found_block``: split the block if the remainder is large enough, and count it as live."""
        totals, every = pool.totals, self._all
        remaining = block.size - size
        was_split = block.prev is not None or block.next is not None
        if remaining >= pool.least_remainder and (self._max_split is None or pool.is_small or size < self._max_split):
            rest = Block(block.address + size, remaining, block, block.next, pool)
            if rest.next is not None:
                rest.next.prev = rest
            block.next = rest
            block.size = size
            pool.insert(rest)
            blocks, nbytes_split = (0, -size) if was_split else (1, remaining)
        else:
            size = block.size
            blocks, nbytes_split = (-1, -size) if was_split else (0, 0)
        if nbytes_split and self._expandable is None:
            totals.split.add(blocks)
            every.split.add(blocks)
            totals.split_bytes.add(nbytes_split)
            every.split_bytes.add(nbytes_split)
        block.live = True
        block.requested = nbytes
        self._live[block.address] = block
        self._count_allocated(totals, 1, size, nbytes)
        return block.address

    def _count_allocated(self, totals: Totals, block_count: int, size: int, nbytes: int) -> None:
        every = self._all
        totals.allocation.add(block_count)
        every.allocation.add(block_count)
        totals.allocated_bytes.add(size)
        every.allocated_bytes.add(size)
        totals.requested_bytes.add(nbytes)
        every.requested_bytes.add(nbytes)
        if self._max_split is not None and abs(size) >= self._max_split:
            self._oversize_allocations.add(block_count)

    def _malloc_separately(self, nbytes: int, stream: int) -> int:
        """Allocate in a separate segment, without touching any list of free blocks."""
        pool = (self._pools.get(stream) or self._new_pools())[nbytes > SMALL_SIZE]
        size = self._fixed.segment_size(self.settings.round_up(nbytes))
        self._driver.count_reserved(pool, size, 1)
        address = self._driver.reserve_addresses(size)
        self._driver.report_event("segment_alloc", address, size)
        return self._take_from_block(pool, Block(address, size, None, None, pool), size, nbytes)

    def _free(self, address: int) -> None:
        """``free`` and ``free_block``: merge the block with its free neighbours, and return it to the pool."""
        block = self._live.pop(address, None)
        if block is None:
            raise ValueError(f"no live block at {address:#x}")
        pool = block.pool
        totals, every = pool.totals, self._all
        size = block.size
        self._count_allocated(totals, -1, -size, -block.requested)
        block.live = False
        blocks = 0
        if block.prev is not None or block.next is not None:
            blocks = -pool.merge(block)
            if self._expandable is None:
                if block.prev is None and block.next is None:
                    size -= block.size
                else:
                    blocks += 1
                totals.split.add(blocks)
                every.split.add(blocks)
                totals.split_bytes.add(size)
                every.split_bytes.add(size)
        pool.insert(block)

    def _allocate_segment_block(self, pool: BlockPool, size: int, nbytes: int) -> Block:
        """``malloc`` if no free block was found: allocate a new segment, releasing cached ones if necessary."""
        if self._collects:
            limit = min(self._driver.limit, self.capacity_bytes)
            surplus = self.reserved - int(self.settings.garbage_collection_threshold * limit)
            self._fixed.collect_garbage([large for _, large in self._pools.values()], surplus)
        block = self._segments.allocate(pool, size)
        if block is None and self._max_split is not None and self._fixed.release_oversize(pool, size):
            block = self._segments.allocate(pool, size)
        if block is None:
            self._release_cached()
            self.retries += 1
            block = self._segments.allocate(pool, size)
        if block is None:
            self.shortages += 1
            self._driver.report_event("oom", max(self._driver.limit - self.reserved, 0), nbytes)
            if self.shortage is None:
                self.shortage = AllocatorShortage(nbytes, self._fixed.segment_size(size), self.allocated, self.reserved)
            self._driver.limit = UNLIMITED
            block = self._segments.allocate(pool, size)
            assert block is not None
        return block

    def _release_cached(self) -> None:
        """``release_cached_blocks``: release every segment that is one free block."""
        self.synchronizations += 1
        for which in (1, 0):
            for pools in self._pools.values():
                self._segments.release(pools[which])
