"""Whose bytes are counted: shares of flat buffers, and that a peak's division by modules is whole and exact."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

from gonogo.evidence.rehearsal.record import CATEGORIES
from gonogo.virtual.hooks import engine
from gonogo.virtual.memory.owners import (
    OwnerRanges,
    divide_among_modules,
    owner_of_part,
    owner_of_positions,
    owner_of_ranges,
    scale_owner,
)
from gonogo.virtual.memory.tracking import DeviceRecord, MemoryRecord
from gonogo.virtual.patching.patches import Patches


def test_a_flat_buffer_is_shared_out_by_ranges() -> None:
    assert owner_of_ranges([(8, "a"), (8, "a"), (0, "b")]) == "a"
    flat = owner_of_ranges([(8, "a"), (4, "b"), (4, None)])
    assert flat == OwnerRanges(((8, "a"), (4, "b"), (4, None)))
    assert owner_of_part(flat, 4, 12) == OwnerRanges(((4, "a"), (4, "b")))
    assert owner_of_part(flat, 0, 8) == "a"
    assert scale_owner(flat, 32) == OwnerRanges(((16, "a"), (8, "b"), (8, None)))  # a copy in fp32 of what was bf16
    assert divide_among_modules(flat, 10) == [("a", 5), ("b", 2), (None, 3)]  # whatever the size, nothing is lost
    assert divide_among_modules("a", 10) == [("a", 10)]


def test_ranges_are_placed_in_any_order_and_tied_weights_count_once() -> None:
    assert owner_of_positions([(4, 8, "b"), (0, 4, "a")], 8) == OwnerRanges(((4, "a"), (4, "b")))
    assert owner_of_positions([(0, 4, "a"), (0, 4, "tied")], 8) == OwnerRanges(((4, "a"), (4, None)))
    assert owner_of_positions([(0, 400, "a")], 8) == "a"


def test_each_peak_is_divided_exactly_whatever_is_moved_before_and_after() -> None:
    """Against a ledger kept by hand: cells come, go, become other categories and other owners, in any order."""
    draw = random.Random(7)
    flat = OwnerRanges(((3, "x"), (1, "y")))
    for _ in range(30):
        memory = MemoryRecord(lambda name: DeviceRecord(name, 1 << 30, 0, None))
        device = memory.device("cuda:0")
        live: dict[int, list[object]] = {}
        peak, at_peak = 0, {}
        for number in range(200):
            action = draw.random()
            if action < 0.45 or not live:
                memory.module = draw.choice([None, "a", "b", "c"])
                memory.set_category(draw.choice(CATEGORIES))
                live[number] = [memory.new_cell("cuda:0", 4 * draw.randrange(1, 99))]
            elif action < 0.75:
                del live[draw.choice(list(live))]
            elif action < 0.9:
                memory.recategorise(live[draw.choice(list(live))][0], draw.choice(CATEGORIES))  # type: ignore[arg-type]
            else:
                memory.set_owner(live[draw.choice(list(live))][0], draw.choice(["a", "b", flat]))  # type: ignore[arg-type]
            if device.live > peak:
                peak, at_peak = device.live, dict(enumerate(device.by_category))
            assert sum(device.by_category) == device.live
        device.save_peak()
        held: Counter[str] = Counter()
        for category, _, nbytes in device.peak_breakdown():
            assert nbytes > 0
            held[category] += nbytes
        assert device.peak == peak
        assert [held[category] for category in CATEGORIES] == list(device.peak_by_category)
        assert sum(at_peak.values()) == peak


def test_what_is_learned_of_an_owner_holds_for_the_peak_it_was_a_part_of() -> None:
    memory = MemoryRecord(lambda name: DeviceRecord(name, 1 << 30, 0, None))
    device = memory.device("cuda:0")
    memory.set_category("optimizer")
    state, passing = memory.new_cell("cuda:0", 100), memory.new_cell("cuda:0", 50)
    del passing  # the peak is over
    memory.recategorise(state, "parameters")  # what it is now is not what it was then
    memory.set_owner(state, "lm_head")
    assert sorted(device.peak_breakdown(), key=str) == [("optimizer", "lm_head", 100), ("optimizer", None, 50)]
    later = memory.new_cell("cuda:0", 10)
    memory.set_owner(later, "norm")  # was not there
    assert sorted(device.peak_breakdown(), key=str) == [("optimizer", "lm_head", 100), ("optimizer", None, 50)]


def test_the_gradients_that_zero_2_keeps_are_gradients_from_the_moment_that_backward_makes_room_for_them() -> None:
    """A step's peak is in the middle of backward: what is only found out when it is over comes too late."""
    memory = MemoryRecord(lambda name: DeviceRecord(name, 1 << 30, 0, None))
    memory.set_category("temporary")

    class Optimizer:
        """As DeepSpeed's of ZeRO-1 and -2, with and without another dtype for accumulation."""

        kept: list[Any] = []  # noqa: RUF012

        def copy_grads_in_partition(self) -> None:
            self.kept.append(memory.new_cell("cuda:0", 4096))

        def _build_compact_grad_partition_buffer(self) -> None:
            self.kept.append(memory.new_cell("cuda:0", 1024))

        def average_tensor(self) -> None:
            self.kept.append(memory.new_cell("cuda:0", 512))

    patches = Patches()
    module = SimpleNamespace(DeepSpeedZeroOptimizer=Optimizer)
    engine._categorise_reduction_buckets(
        patches, SimpleNamespace(memory=memory), "DeepSpeedZeroOptimizer", None, module
    )  # type: ignore[arg-type]
    made = Optimizer()
    made.copy_grads_in_partition()
    made._build_compact_grad_partition_buffer()
    made.average_tensor()
    assert +Counter(memory.device("cuda:0").bytes_by_category()) == {"gradients": 5120, "temporary": 512}
    patches.undo()
