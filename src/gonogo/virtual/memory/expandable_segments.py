"""Expandable segments: one address range per pool, in which memory is mapped page by page as it grows.

Source: c10/cuda/CUDACachingAllocator.cpp, ``ExpandableSegment``, ``find_expandable_block``, ``map_block``,
``try_allocate_expandable_block``, ``unmap_block``. Pages have 2 MiB in the small pool and 20 MiB in the large one.
"""

from __future__ import annotations

from gonogo.virtual.memory.blocks import ADDRESS_MASK, Block, BlockPool
from gonogo.virtual.memory.driver import MemoryDriver


class ExpandableSegments:
    """The expandable segments of one allocator."""

    def __init__(self, driver: MemoryDriver) -> None:
        self._driver = driver

    def best_fit(self, pool: BlockPool, index: int) -> int:
        """Index of the best-fitting free block from ``index`` on, taking into account how far each can still grow."""
        blocks = [pool.free[key & ADDRESS_MASK] for key in pool.keys[index : index + 2]]
        while len(blocks) == 2 and _expandable_size(blocks[1]) < _expandable_size(blocks[0]):
            index += 1
            blocks = [pool.free[key & ADDRESS_MASK] for key in pool.keys[index : index + 2]]
        return index

    def allocate(self, pool: BlockPool, size: int) -> Block | None:
        """A free block of at least ``size`` bytes, already removed from the pool, or None if memory runs out."""
        block = self._find_growable_block(pool, size)
        if not block.mapped and not self._map(pool, block, min(block.size, size)):
            return None
        while block.size < size:
            following = block.next
            if following is None or not self._map(pool, following, min(size - block.size, following.size)):
                return None
            block = following
        pool.remove(block)
        return block

    def release(self, pool: BlockPool) -> None:
        """Unmap every page that lies entirely in a free block."""
        for block in pool.in_order():
            self._unmap_block(pool, block)

    def _find_growable_block(self, pool: BlockPool, size: int) -> Block:
        for address in sorted(pool.unmapped):
            block = pool.unmapped[address]
            if block.prev is not None and not block.prev.live:
                block = block.prev
            room = 0
            reached: Block | None = block
            while reached is not None and not reached.live and room < size:
                room += reached.size
                reached = reached.next
            if room >= size:
                return block
        span = max(self._driver.capacity_bytes + self._driver.capacity_bytes // 8, size)
        span = -(-span // pool.granularity) * pool.granularity
        block = Block(self._driver.reserve_addresses(span, pool.granularity), span, None, None, pool)
        block.mapped = False
        pool.unmapped[block.address] = block
        return block

    def _map(self, pool: BlockPool, block: Block, size: int) -> bool:
        """Map whole pages behind the first ``size`` bytes of an unmapped block, and merge; False if memory runs
        out."""
        mapped = min(-(-size // pool.granularity) * pool.granularity, block.size)
        if not self._driver.reserve_bytes(pool, mapped, segment_count=0):
            return False
        self._driver.report_event("segment_map", block.address, mapped)
        del pool.unmapped[block.address]
        if mapped < block.size:
            rest = Block(block.address + mapped, block.size - mapped, block, block.next, pool)
            rest.mapped = False
            if rest.next is not None:
                rest.next.prev = rest
            block.next = rest
            block.size = mapped
            pool.unmapped[rest.address] = rest
        block.mapped = True
        pool.merge(block)
        pool.insert(block)
        return True

    def _unmap_block(self, pool: BlockPool, block: Block) -> None:
        page = pool.granularity
        begin = -(-block.address // page) * page
        end = (block.address + block.size) // page * page
        if end <= begin:
            return
        pool.remove(block)
        before, after = begin - block.address, block.address + block.size - end
        block.address, block.size, block.mapped = begin, end - begin, False
        for piece_size, address, follows in ((before, begin - before, False), (after, end, True)):
            if piece_size:
                piece = Block(address, piece_size, None, None, pool)
                piece.prev, piece.next = (block, block.next) if follows else (block.prev, block)
                if piece.prev is not None:
                    piece.prev.next = piece
                if piece.next is not None:
                    piece.next.prev = piece
                pool.insert(piece)
        pool.merge(block)
        pool.unmapped[block.address] = block
        self._driver.release_bytes(pool, end - begin, segment_count=0)
        self._driver.report_event("segment_unmap", begin, end - begin)


def _expandable_size(block: Block) -> int:
    following = block.next
    return block.size + (following.size if following is not None and not following.mapped else 0)
