"""Megatron-LM's index of its data: no longer than a rehearsal may need."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gonogo.finding import Text
from gonogo.virtual.hooks.megatron import _wrap_dataset_builder


@pytest.mark.parametrize(
    ("counts", "settings", "made"),
    [
        ((1_953_125_000, 4_882_944, 4_096), {}, (1 << 20, 1 << 20, 4_096)),
        ((8_000_000, None, 320), {"consumed_train_samples": 5_000_000}, (5_000_000 + (1 << 20), None, 320)),
        ((8_000_000, None, 320), {"iteration": 10_000, "global_batch_size": 500}, (5_000_000 + (1 << 20), None, 320)),
        ((50_000, 320, 320), {}, (50_000, 320, 320)),
    ],
)
def test_a_long_training_is_indexed_in_part(counts: object, settings: dict[str, int], made: object) -> None:
    said: list[Text] = []
    count = _wrap_dataset_builder(lambda: counts, lambda: SimpleNamespace(**settings), said.append)
    assert count() == made
    assert len(said) == (made != counts)
