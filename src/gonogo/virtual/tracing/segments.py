"""The segments of an allocator as they are, with all of their blocks."""

from __future__ import annotations

from gonogo.evidence.rehearsal import trace
from gonogo.virtual.memory.blocks import Block
from gonogo.virtual.memory.caching_allocator import CachingAllocator


def segments_of(allocator: CachingAllocator) -> list[trace.Segment]:
    """In the order of their addresses; of an expandable one, each range that has memory is one."""
    found = []
    for stream, head, expandable in allocator.segments():
        pieces: list[list[Block]] = [[]]
        block: Block | None = head
        while block is not None:
            if block.mapped:
                pieces[-1].append(block)
            elif pieces[-1]:
                pieces.append([])
            block = block.next
        found += [_segment(stream, blocks, expandable) for blocks in pieces if blocks]
    return sorted(found, key=lambda segment: segment.blocks[0].address)


def _segment(stream: int, blocks: list[Block], expandable: bool) -> trace.Segment:
    described = tuple(
        trace.SegmentBlock(block.address, block.size, block.requested if block.live else 0, block.live)
        for block in blocks
    )
    return trace.Segment(stream, blocks[0].pool.is_small, expandable, described)
