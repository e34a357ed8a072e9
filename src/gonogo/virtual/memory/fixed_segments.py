"""Segments allocated by ``cudaMalloc``: of fixed size, released only when entirely free.

Source: c10/cuda/CUDACachingAllocator.cpp, ``get_allocation_size``, ``alloc_block``, ``release_block``,
``release_available_cached_blocks``, ``garbage_collect_cached_blocks``.
"""

from __future__ import annotations

from collections.abc import Iterable

from gonogo.virtual.memory.allocator_settings import AllocatorSettings
from gonogo.virtual.memory.blocks import Block, BlockPool, Stat
from gonogo.virtual.memory.driver import PAGE, MemoryDriver

SMALL_SIZE = 1 << 20
SMALL_SEGMENT = 2 << 20
MIN_LARGE_ALLOCATION = 10 << 20


class FixedSegments:
    """The segments of one allocator."""

    def __init__(self, driver: MemoryDriver, settings: AllocatorSettings) -> None:
        self._driver = driver
        self._settings = settings
        self._max_split = settings.max_split_bytes
        self.oversize = Stat()
        """Segments of at least ``max_split_size_mb``."""

    def segment_size(self, size: int) -> int:
        """Size in bytes of the segment that is allocated for a block of ``size`` bytes."""
        if size <= SMALL_SIZE:
            return SMALL_SEGMENT
        if size < MIN_LARGE_ALLOCATION:
            return self._settings.large_segment_bytes
        return -(-size // PAGE) * PAGE

    def allocate(self, pool: BlockPool, size: int) -> Block | None:
        """Allocate a segment as one block that is in no pool yet, or return None if the driver has no room."""
        segment = self.segment_size(size)
        if not self._driver.reserve_bytes(pool, segment, segment_count=1):
            return None
        if self._max_split is not None and segment >= self._max_split:
            self.oversize.add(1)
        address = self._driver.reserve_addresses(segment)
        self._driver.report_event("segment_alloc", address, segment)
        return Block(address, segment, None, None, pool)

    def release(self, pool: BlockPool) -> None:
        """Release every segment that is one free block."""
        for block in pool.in_order():
            if not block.is_split:
                self._release_block(pool, block)

    def release_oversize(self, pool: BlockPool, size: int) -> bool:
        """Release just enough oversize (never split) blocks for ``size`` bytes; returns False if there aren't
        enough."""
        assert self._max_split is not None
        wanted = max(size, self._max_split)
        blocks = [block for block in pool.in_order() if block.size >= self._max_split]
        fitting = next((block for block in blocks if block.size >= wanted), None)
        if fitting is not None:
            self._release_block(pool, fitting)
            return True
        released = 0
        while blocks and released < wanted:
            block = blocks.pop()
            released += block.size
            self._release_block(pool, block)
        return released >= wanted

    def collect_garbage(self, pools: Iterable[BlockPool], target: int) -> None:
        """Release ``target`` bytes of entirely free segments, those older than the mean age first."""
        free = [
            (pool, block, pool.searches - block.born)
            for pool in pools
            for block in pool.in_order()
            if not block.is_split
        ]
        reclaimed = 0
        while free and reclaimed < target:
            threshold = sum(age for _, _, age in free) / len(free)
            old = [entry for entry in free if entry[2] >= threshold]
            free = [entry for entry in free if entry[2] < threshold]
            for pool, block, _ in old:
                reclaimed += block.size
                self._release_block(pool, block)

    def _release_block(self, pool: BlockPool, block: Block) -> None:
        pool.remove(block)
        self._driver.release_bytes(pool, block.size, segment_count=1)
        self._driver.report_event("segment_free", block.address, block.size)
        if self._max_split is not None and block.size >= self._max_split:
            self.oversize.add(-1)
