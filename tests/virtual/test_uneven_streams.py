"""Ranks whose data sets have no length, and unequally many batches: seen by reading ahead, as far as is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from virtual.worlds import virtual_session


class _Stream(IterableDataset[torch.Tensor]):
    def __init__(self, count: int, width: int) -> None:
        self.count, self.width = count, width

    def __iter__(self) -> Any:
        yield from (torch.ones(self.width) for _ in range(self.count))


def _trained(folder: Path, own: int, other: int, width: int = 4) -> tuple[int, Any]:
    """How many steps a rank with ``own`` batches makes beside one with ``other``; and its record."""
    with virtual_session(folder) as session:
        given = [0]

        def ask(number: int) -> list[int]:
            given[0] += 1
            return [number, number if given[0] == 1 else min(number if number != own - 2 else other - 2, other - 2, 64)]

        session.life.ask_left = ask
        model = nn.Linear(width, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters())
        for batch in DataLoader(_Stream(own, width), batch_size=None):
            model(batch.cuda()).sum().backward()
            optimizer.step()
        return session.life.step, session.record("completed")


@pytest.mark.slow
@pytest.mark.parametrize(("own", "other"), [(46, 43), (40, 45), (12, 11)])
def test_ranks_that_end_apart_go_on_to_the_end(tmp_path: Path, own: int, other: int) -> None:
    steps, _ = _trained(tmp_path, own, other)
    assert steps == own


@pytest.mark.slow
def test_ranks_that_have_as_many_stop_after_their_steps(tmp_path: Path) -> None:
    steps, record = _trained(tmp_path, 46, 46)
    assert steps == 2
    assert not record.left_out


@pytest.mark.slow
@pytest.mark.parametrize(("width", "far"), [(4, "next 64"), (2 << 20, "next 8")])
def test_how_far_was_looked_is_said(tmp_path: Path, width: int, far: str) -> None:
    steps, record = _trained(tmp_path, 300, 300, width)
    assert steps == 2
    assert [far in one.what for one in record.left_out] == [True]
