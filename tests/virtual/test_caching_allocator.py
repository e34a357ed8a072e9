from __future__ import annotations

import gc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gonogo.virtual.memory.allocator_settings import AllocatorSettings
from gonogo.virtual.memory.caching_allocator import AllocatorShortage, CachingAllocator

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def allocator(capacity: int = 80 * GIB, conf: str = "") -> CachingAllocator:
    return CachingAllocator(capacity, AllocatorSettings.parse(conf))


@pytest.mark.parametrize(
    ("nbytes", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (11 * MIB + 1, 12 * MIB, 12 * MIB),  # less than 1 MiB would remain: not split
        (29568 * 8192 * 2, 29568 * 8192 * 2, 462 * MIB),
    ],
)
def test_rounds_blocks_and_segments(nbytes: int, block: int, segment: int) -> None:
    memory = allocator()
    address = memory.malloc(nbytes)
    assert (memory.size_of(address), memory.allocated, memory.reserved) == (block, block, segment)
    assert memory.memory_stats()["requested_bytes.all.current"] == nbytes


def test_keeps_a_remainder_of_one_mebibyte_in_a_large_block() -> None:
    memory = allocator()
    assert memory.size_of(memory.malloc(11 * MIB)) == 12 * MIB
    assert memory.size_of(memory.malloc(11 * MIB - 512)) == 11 * MIB - 512


def test_best_fit_then_lowest_address() -> None:
    memory = allocator()
    first, wall, second, wall2 = (memory.malloc(size) for size in (4096, 512, 2048, 512))
    memory.free(first)
    memory.free(second)
    assert memory.malloc(1536) == second  # the smallest hole that fits, though another comes before it
    assert memory.malloc(1536) == first
    assert {wall, wall2}.isdisjoint({first, second})


def test_freed_neighbours_become_one() -> None:
    memory = allocator()
    a, b, c, wall = (memory.malloc(512) for _ in range(4))
    for address in (b, a, c):
        memory.free(address)
    assert memory.malloc(1536) == a
    memory.free(wall)
    assert memory.memory_stats()["segment.all.current"] == 1


def test_a_cached_segment_is_given_back_before_memory_runs_out() -> None:
    memory = allocator(40 * MIB)
    memory.free(memory.malloc(30 * MIB))
    assert memory.reserved == 30 * MIB
    memory.malloc(32 * MIB)
    assert (memory.reserved, memory.retries, memory.shortage) == (32 * MIB, 1, None)
    memory.malloc(9 * MIB)
    assert memory.shortage == AllocatorShortage(9 * MIB, 20 * MIB, 32 * MIB, 32 * MIB)
    memory.malloc(100 * GIB)
    assert memory.reserved == 52 * MIB + 100 * GIB
    assert memory.shortage.requested == 9 * MIB
    assert memory.memory_stats()["num_ooms"] == 1


def test_fragmentation_runs_out_where_the_sum_would_fit() -> None:
    memory = allocator(100 * MIB)
    addresses = [memory.malloc(size * MIB) for _ in range(5) for size in (9, 2, 9)]
    assert memory.reserved == memory.allocated == 100 * MIB
    for number, address in enumerate(addresses):
        if number % 3 != 1:
            memory.free(address)
    memory.malloc(50 * MIB)
    assert memory.shortage == AllocatorShortage(50 * MIB, 50 * MIB, 10 * MIB, 100 * MIB)


def test_streams_do_not_share_free_blocks() -> None:
    memory = allocator()
    address = memory.malloc(4096)
    memory.free(address)
    assert memory.malloc(4096, stream=1) != address
    assert memory.malloc(4096) == address
    assert memory.reserved == 4 * MIB


def test_large_blocks_are_not_split_beyond_the_limit() -> None:
    memory = allocator(conf="max_split_size_mb:64")
    big = memory.malloc(128 * MIB)
    memory.free(big)
    memory.malloc(32 * MIB)
    assert memory.reserved == 160 * MIB  # the cached 128 MiB would not be split for it
    assert memory.malloc(110 * MIB) == big  # within 20 MiB of it
    memory.free(big)
    assert memory.malloc(100 * MIB) != big


def test_oversize_blocks_are_given_back_one_at_a_time() -> None:
    memory = allocator(300 * MIB, "max_split_size_mb:64")
    addresses = [memory.malloc(size * MIB) for size in (90, 100, 110)]
    for address in addresses:
        memory.free(address)
    memory.malloc(66 * MIB)  # 90 MiB is 24 MiB too large to be used whole, and large enough to make room
    assert memory.reserved == (100 + 110 + 66) * MIB
    assert memory.retries == 0


def test_garbage_collection_gives_back_what_was_not_used_for_long() -> None:
    memory = allocator(1000 * MIB, "garbage_collection_threshold:0.5")
    old = memory.malloc(300 * MIB)
    memory.free(old)
    young = memory.malloc(250 * MIB + 512)
    memory.free(young)
    keep = memory.malloc(400 * MIB)
    assert keep
    assert memory.reserved < 1000 * MIB
    memory.malloc(500 * MIB)
    assert memory.reserved == 900 * MIB
    assert memory.retries == 0


def test_expandable_segment_grows_in_place() -> None:
    memory = allocator(100 * MIB, "expandable_segments:True")
    first = memory.malloc(30 * MIB)
    assert memory.reserved == 40 * MIB  # two pages of 20 MiB
    second = memory.malloc(30 * MIB)
    assert second == first + 30 * MIB
    assert memory.reserved == 60 * MIB
    memory.free(first)
    memory.malloc(50 * MIB)  # 30 MiB free at the front are too few: 80 more don't fit before pages are unmapped
    assert memory.shortage is None
    assert memory.reserved == 100 * MIB
    assert memory.malloc(10 * MIB) == first + 20 * MIB  # what was left of a page


def test_expandable_segments_do_not_fragment_by_segment() -> None:
    """Tensors that grow from step to step: each fixed segment is too small for the next, an expandable one grows."""
    reserved = {}
    for conf in ("", "expandable_segments:True"):
        memory = allocator(conf=conf)
        for step in range(5):
            for address in [memory.malloc((100 + 10 * step) * MIB) for _ in range(3)]:
                memory.free(address)
        reserved[conf] = memory.reserved
    assert reserved == {"": 3 * (100 + 110 + 120 + 130 + 140) * MIB, "expandable_segments:True": 420 * MIB}


def test_expandable_segment_runs_out() -> None:
    memory = allocator(60 * MIB, "expandable_segments:True")
    memory.malloc(45 * MIB)
    assert memory.shortage is None
    memory.malloc(20 * MIB)
    assert memory.shortage == AllocatorShortage(20 * MIB, 20 * MIB, 45 * MIB, 60 * MIB)


def test_zero_bytes_take_nothing() -> None:
    memory = allocator()
    assert memory.malloc(0) == 0
    memory.free(0)
    assert memory.reserved == 0


def test_freeing_twice_is_an_error() -> None:
    memory = allocator()
    address = memory.malloc(10)
    memory.free(address)
    with pytest.raises(ValueError, match="no live block"):
        memory.free(address)


def test_empty_cache_and_peaks() -> None:
    memory = allocator()
    memory.free(memory.malloc(100 * MIB))
    memory.malloc(100)
    memory.empty_cache()
    assert (memory.reserved, memory.peak_reserved) == (2 * MIB, 102 * MIB)
    memory.reset_peaks()
    assert (memory.peak_reserved, memory.peak_allocated) == (2 * MIB, 512)


def test_memory_fraction() -> None:
    memory = allocator(100 * MIB)
    memory.set_memory_fraction(0.5, 110 * MIB)
    memory.malloc(60 * MIB)
    assert memory.shortage is not None


def test_stats_by_hand() -> None:
    memory = allocator()
    a = memory.malloc(100)
    memory.malloc(200)
    memory.malloc(3 * MIB)
    memory.free(a)
    stats = memory.memory_stats()
    assert stats["allocated_bytes.all.current"] == 512 + 3 * MIB
    assert stats["allocated_bytes.small_pool.peak"] == 1024
    assert stats["allocation.all.allocated"] == 3
    assert stats["allocation.all.freed"] == 1
    assert stats["inactive_split.small_pool.current"] == 2  # the hole and the rest of the segment
    assert stats["inactive_split_bytes.small_pool.current"] == 2 * MIB - 512
    assert stats["inactive_split_bytes.large_pool.current"] == 17 * MIB
    assert stats["segment.all.current"] == 2
    assert stats["num_device_alloc"] == 2
    assert list(stats) == sorted(stats)


def test_a_finalizer_may_free_amid_a_call() -> None:
    memory = allocator()

    class Tensor:
        def __init__(self) -> None:
            self.me = self
            self.address = memory.malloc(512)

        def __del__(self) -> None:
            memory.free(self.address)
            memory.free(memory.malloc(4 * MIB))

    threshold = gc.get_threshold()
    gc.set_threshold(3)
    try:
        for _ in range(2000):
            Tensor()
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    memory.free(memory.malloc(1))
    assert memory.allocated == 0
    check(memory)


@pytest.mark.parametrize(
    ("conf", "nbytes", "expected"),
    [
        ("", 1200, 1536),
        ("roundup_power2_divisions:4", 1200 * KIB, 1280 * KIB),
        ("roundup_power2_divisions:4", 1024 * KIB, 1024 * KIB),
        ("roundup_power2_divisions:4", 2048, 2048),  # not more than 512 bytes a division
        ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 300 * MIB, 300 * MIB),
        ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 600 * MIB, 768 * MIB),
        ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 1100 * MIB, 1280 * MIB),
        ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 5 * GIB + 1, 5 * GIB + 512 * MIB),
    ],
)
def test_rounding_up(conf: str, nbytes: int, expected: int) -> None:
    assert AllocatorSettings.parse(conf).round_up(nbytes) == expected


def test_settings_from_the_environment() -> None:
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb: 128, expandable_segments:True,backend:native"}
    settings_ = AllocatorSettings.from_environment(environment)
    assert settings_ == AllocatorSettings(max_split_bytes=128 * MIB, expandable_segments=True)
    assert AllocatorSettings.from_environment({"PYTORCH_ALLOC_CONF": "garbage_collection_threshold:0.6"}) == (
        AllocatorSettings(garbage_collection_threshold=0.6)
    )
    assert AllocatorSettings.from_environment({}) == AllocatorSettings()


@pytest.mark.parametrize(
    "text",
    [
        "max_split_size_mb:10",
        "max_split_size:128",
        "expandable_segments:true",
        "garbage_collection_threshold:1.5",
        "roundup_power2_divisions:3",
        "max_split_size_mb",
        "max_split_size_mb:many",
    ],
)
def test_settings_that_pytorch_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        AllocatorSettings.parse(text)


CONFS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "roundup_power2_divisions:8,garbage_collection_threshold:0.7",
)
SIZES = st.one_of(st.integers(0, 4096), st.integers(0, 3 * MIB), st.integers(0, 200 * MIB))
STEPS = st.lists(st.tuples(st.booleans(), SIZES, st.integers(0, 1000), st.integers(0, 1)), max_size=80)


@given(STEPS, st.sampled_from(CONFS), st.sampled_from([150 * MIB, 80 * GIB]))
@settings(max_examples=300, deadline=None)
def test_invariants(steps: list[tuple[bool, int, int, int]], conf: str, capacity: int) -> None:
    memory = allocator(capacity, conf)
    live: dict[int, int] = {}
    for is_free, size, choice, stream in steps:
        if is_free and live:
            address = sorted(live)[choice % len(live)]
            del live[address]
            memory.free(address)
        elif address := memory.malloc(size, stream):
            assert address not in live
            assert memory.size_of(address) >= size
            live[address] = size
        if choice == 7:
            memory.empty_cache()
        check(memory)
        assert memory.shortage is not None or memory.reserved <= capacity
    assert memory.memory_stats()["requested_bytes.all.current"] == sum(live.values())
    for address in live:
        memory.free(address)
    memory.empty_cache()
    check(memory)
    assert (memory.allocated, memory.reserved) == (0, 0)


def check(memory: CachingAllocator) -> None:
    """Blocks don't overlap; free neighbours are one; what is counted is what is there."""
    blocks = list(memory._live.values())
    assert all(address == block.address for address, block in memory._live.items())
    for pools in memory._pools.values():
        for pool in pools:
            assert pool.keys == sorted(pool.keys)
            assert len(pool.keys) == len(pool.free)
            assert [b.address for b in pool.in_order()] == [key & ((1 << 64) - 1) for key in pool.keys]
            blocks += pool.free.values()
            blocks += pool.unmapped.values()
    blocks.sort(key=lambda b: b.address)
    for before, after in pairwise(blocks):
        assert before.address + before.size <= after.address
    for block in blocks:
        assert block.size > 0
        if block.next is not None:
            assert block.next.prev is block
            assert block.address + block.size == block.next.address
            assert block.live or block.next.live or block.mapped is not block.next.mapped
    assert memory.allocated == sum(b.size for b in blocks if b.live)
    assert memory.reserved == sum(b.size for b in blocks if b.mapped)
    assert memory.allocated <= memory.reserved
    stats = memory.memory_stats()
    if not memory.settings.expandable_segments:
        split = [b for b in blocks if not b.live and b.is_split]
        assert stats["inactive_split.all.current"] == len(split)
        assert stats["inactive_split_bytes.all.current"] == sum(b.size for b in split)
        assert stats["segment.all.current"] == sum(b.prev is None for b in blocks)
    for name in ("allocation", "allocated_bytes", "reserved_bytes", "segment", "inactive_split_bytes"):
        both = sum(stats[f"{name}.{pool}.current"] for pool in ("small_pool", "large_pool"))
        assert stats[f"{name}.all.current"] == both
