"""Megatron-LM where some ranks don't run: its checkpoint's parts aren't compared; evaluation reads what it counts."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import DataLoader
from virtual.worlds import virtual_session

from gonogo.virtual.hooks import megatron
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor


def test_parts_of_ranks_that_do_not_run_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    assumed: list[Any] = []
    monkeypatch.setattr(VirtualTensor, "virtual_mode", SimpleNamespace(ledger=SimpleNamespace(assume=assumed.append)))
    module: Any = ModuleType("megatron.core.dist_checkpointing.validation")

    def validate_sharding_integrity(metadata: Any) -> None:
        raise ValueError(metadata)

    module.validate_sharding_integrity = validate_sharding_integrity
    patches = Patches()
    megatron._skip_checkpoint_validation(patches, module)
    module.validate_sharding_integrity([])
    assert len(assumed) == 1
    patches.undo()
    assert module.validate_sharding_integrity is validate_sharding_integrity


@pytest.mark.parametrize(("counted", "read"), [(True, 6), (False, 2)])
def test_an_evaluation_that_is_counted_gets_all_that_it_asks_for(tmp_path: Path, counted: bool, read: int) -> None:
    """Each iteration of Megatron's reads a batch for each micro-batch: with two, the third batch is the second's."""
    with virtual_session(tmp_path) as session:
        session.life.counts_evaluation = counted
        with session.life.during("evaluate", "Megatron's evaluate"):
            batches = iter(DataLoader(list(range(100)), batch_size=1))  # type: ignore[arg-type]
            assert len([None for _, _ in zip(range(6), batches, strict=False)]) == read
