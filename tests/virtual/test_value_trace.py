"""What a batch's values decide: another batch leads to the same, or it doesn't."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gonogo.virtual.values.value_trace import ValueTrace

aten = torch.ops.aten
PADDED, OTHERWISE_PADDED, WHOLE = (
    torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]),
    torch.tensor([[1, 0, 0, 0], [1, 1, 1, 1]]),
    torch.ones(2, 4, dtype=torch.int64),
)


def _whether_whole(trace: ValueTrace, mask: torch.Tensor) -> None:
    trace.record_read(trace.run_and_record(aten.all.default, (mask,), {}))


def _where_set(trace: ValueTrace, mask: torch.Tensor) -> None:
    trace.run_and_record(aten.nonzero.default, (mask,), {})


def _longest(trace: ValueTrace, mask: torch.Tensor) -> None:
    lengths = trace.run_and_record(aten.sum.dim_IntList, (mask, [1]), {})
    trace.record_read(trace.run_and_record(aten.max.default, (lengths,), {}))


def _all_of_it(trace: ValueTrace, mask: torch.Tensor) -> None:
    trace.record_read(mask)


def _written_into_another(trace: ValueTrace, mask: torch.Tensor) -> None:
    buffer = torch.zeros(2, 4, dtype=torch.int64)
    trace.run_and_record(aten.add_.Tensor, (buffer, mask), {})
    trace.run_and_record(aten.mul_.Tensor, (buffer, 3), {})
    trace.record_read(trace.run_and_record(aten.amin.default, (buffer[:, :2],), {}))


def _laid_otherwise(trace: ValueTrace, mask: torch.Tensor) -> None:
    copy = mask.t().contiguous()
    trace.record_copy(copy, mask.t())
    trace.record_read(copy[3])


def _beside_what_changes(trace: ValueTrace, mask: torch.Tensor) -> None:
    table = torch.arange(8)
    found = trace.run_and_record(aten.mul.Tensor, (mask, table[:4]), {})
    table.zero_()
    trace.record_read(trace.run_and_record(aten.amax.default, (found,), {}))


def _tested(trace: ValueTrace, mask: torch.Tensor) -> None:
    trace.record_test(mask, lambda values: int(values.max()) < 2)


@pytest.mark.parametrize(
    ("use", "of_padded", "of_whole"),
    [
        (_whether_whole, True, False),
        (_where_set, True, False),
        (_longest, False, False),
        (_all_of_it, False, False),
        (_written_into_another, False, True),
        (_laid_otherwise, False, False),
        (_beside_what_changes, False, False),
        (_tested, True, True),
    ],
)
def test_another_batch_leads_to_the_same(
    use: Callable[[ValueTrace, torch.Tensor], None], of_padded: bool, of_whole: bool
) -> None:
    """Two masks: one with as many ones, elsewhere, and one of ones alone."""
    first = PADDED.clone()
    trace = ValueTrace([first])
    with trace:
        use(trace, first)
    assert trace.has_same_reads_for([PADDED.clone()])
    others = (OTHERWISE_PADDED.clone(), WHOLE.clone())
    assert (trace.has_same_reads_for([others[0]]), trace.has_same_reads_for([others[1]])) == (of_padded, of_whole)
    assert torch.equal(others[0], OTHERWISE_PADDED)
    assert torch.equal(others[1], WHOLE)


def test_nothing_hangs_on_values_that_nobody_reads() -> None:
    first = PADDED.clone()
    trace = ValueTrace([first])
    with trace:
        trace.record_read(trace.run_and_record(aten.all.default, (torch.ones(3),), {}))
        trace.run_and_record(aten.mul.Tensor, (first, 2), {})
    assert trace.has_same_reads_for([WHOLE.clone()])


def test_values_that_an_operator_refuses_lead_elsewhere() -> None:
    table = torch.zeros(2, 3)
    first = PADDED.clone()
    trace = ValueTrace([first])
    with trace:
        trace.run_and_record(aten.embedding.default, (table, first), {})
    assert trace.has_same_reads_for([WHOLE.clone()])
    assert not trace.has_same_reads_for([WHOLE * 5])


def test_what_is_written_to_a_large_tensor_can_not_be_told() -> None:
    first = PADDED.clone()
    trace = ValueTrace([first])
    with trace:
        large: Any = torch.zeros(2 << 20, 4, dtype=torch.int64)
        trace.run_and_record(aten.copy_.default, (large[:2], first), {})
    assert not trace.has_same_reads_for([PADDED.clone()])


def test_a_trace_knows_its_own_batch_alone() -> None:
    first = PADDED.clone()
    earlier = ValueTrace([first])
    later = ValueTrace([OTHERWISE_PADDED.clone()])
    with later:
        later.record_read(first)
    assert later.has_same_reads_for([WHOLE.clone()])
    assert earlier.has_same_reads_for([WHOLE.clone()])
