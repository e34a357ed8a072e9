"""Which of the later batches are run for what they have that the first had not."""

from __future__ import annotations

import torch

from gonogo.virtual.hooks.batches.odd_batches import MAX_ODD_BATCHES, OddBatches


def batch(rows: int, length: int, label: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.ones(rows, length, dtype=torch.int64), "labels": torch.full((rows,), label)}


def test_a_larger_label_a_longer_row_and_fewer_rows_are_found() -> None:
    seen = OddBatches()
    for label in (0, 3):
        seen.record_seen(batch(4, 8, label))
    alike, high, long, short = batch(4, 8, 2), batch(4, 8, 9), batch(4, 12, 1), batch(2, 8, 1)
    assert seen.find_odd_indices([alike, high, alike, long, short]) == [4, 1, 3]


def test_of_many_only_the_extreme_ones_are_kept() -> None:
    seen = OddBatches()
    seen.record_seen([torch.zeros(4, dtype=torch.int64)])
    assert seen.find_odd_indices([torch.full((4,), number)] for number in range(100)) == [99]
    many = [[torch.full((1,), place == at, dtype=torch.int64) for place in range(9)] for at in range(9)]
    seen = OddBatches()
    seen.record_seen([torch.zeros(1, dtype=torch.int64)] * 9)
    assert len(seen.find_odd_indices(many)) == MAX_ODD_BATCHES


def test_numbers_that_are_no_whole_ones_make_no_batch_odd() -> None:
    seen = OddBatches()
    seen.record_seen((torch.zeros(4), torch.zeros(4, dtype=torch.bool)))
    assert seen.find_odd_indices([(torch.full((4,), 9.0), torch.ones(4, dtype=torch.bool))]) == []
