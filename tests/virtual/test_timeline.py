"""Memory over time: few points, and of each peak the whole."""

from __future__ import annotations

import random

from gonogo.virtual.memory.caching_allocator import CachingAllocator
from gonogo.virtual.memory.tracking import Cell, DeviceRecord

GIB = 1 << 30


def device(total: int = 80 * GIB) -> DeviceRecord:
    return DeviceRecord("cuda:0", total, 0, CachingAllocator(total))


def held(record: DeviceRecord) -> list[int]:
    columns = record.as_timeline().by_category.values()
    return [sum(column) for column in zip(*columns, strict=True)]


def test_a_short_peak_between_many_small_allocations_is_kept_whole() -> None:
    drawn, record, cells = random.Random(0), device(), []
    for number in range(20_000):
        cells.append(Cell(record, drawn.randrange(1, 1 << 20), number % 3, "model.layers.0"))
        if len(cells) > 50:
            del cells[drawn.randrange(len(cells))]
        if number == 12_345:
            short = Cell(record, 7 * GIB, 4, "model.embed_tokens")
            del short
    timeline = record.as_timeline()
    assert 256 <= len(timeline.phases) <= 512
    assert timeline.allocations * (len(timeline.phases) - 1) <= 20_001 < timeline.allocations * len(timeline.phases) + 1
    highest = max(range(len(timeline.phases)), key=lambda point: held(record)[point])
    assert held(record)[highest] == record.peak == sum(record.as_device_memory().by_category.values())
    assert timeline.by_category["communication"][highest] == 7 * GIB
    assert (timeline.reached_by[highest], timeline.modules[highest]) == ("communication", "model.embed_tokens")
    assert all(len(column) == len(timeline.phases) for column in timeline.by_category.values())


def test_what_never_held_anything_is_left_out_and_the_last_moment_is_there() -> None:
    record = device()
    one = Cell(record, 512, 0, None)
    assert (list(record.as_timeline().by_category), held(record)) == (["parameters"], [512, 512])
    del one
    assert held(record)[0] == 512


def test_what_leaves_no_trace_leaves_none_here() -> None:
    record = device()
    kept = Cell(record, 512, 0, None)
    with record.without_peak_update():
        passing = [Cell(record, GIB, 1, None) for _ in range(10)]
        del passing
    assert max(held(record)) == kept.nbytes
