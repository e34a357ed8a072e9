"""What an evaluation keeps of each batch is counted for all its batches, though a few are rehearsed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from virtual.worlds import virtual_session

MIB = 1 << 20
Keep = Callable[[list[Any], Any], None]


def _logits(kept: list[Any], out: Any) -> None:
    kept.append(out)


def _on_cpu(kept: list[Any], out: Any) -> None:
    kept.append(out.cpu())


def _losses(kept: list[Any], out: Any) -> None:
    kept.append(out.mean())


def _nothing(kept: list[Any], out: Any) -> None:
    """The outputs of one batch take the place of the last one's."""


def _joined(kept: list[Any], out: Any) -> None:
    kept[:] = [torch.cat([*kept, out])]


class _Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Any:
        yield from (torch.ones(4) for _ in range(40))


def _evaluated(folder: Path, keep: Keep, total: int | None = None, rows: Any = None) -> Any:
    """A model is trained for two steps, then evaluated over 40 batches, each with 8 MiB of outputs."""
    with virtual_session(folder, total) as session:
        model = nn.Linear(4, 1 << 19).cuda()
        optimizer = torch.optim.SGD(model.parameters())
        for batch in DataLoader([torch.ones(4)] * 16, batch_size=4):  # type: ignore[arg-type]
            model(batch.cuda()).sum().backward()
            optimizer.step()
        optimizer.zero_grad()
        before = session.memory.device(torch.device("cuda", 0)).live
        model.eval()
        kept: list[Any] = []
        with torch.no_grad():
            for batch in DataLoader(rows if rows is not None else [torch.ones(4)] * 160, batch_size=4):
                keep(kept, model(batch.cuda()))
        record = session.record("completed")
    device = record.devices[0]
    return record, device, before


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "grows"), [(_logits, 40), (_joined, 40), (_on_cpu, 0), (_losses, 0), (_nothing, 0)])
def test_memory_that_grows_by_batch_is_counted_for_all(tmp_path: Path, keep: Keep, grows: int) -> None:
    record, device, before = _evaluated(tmp_path, keep)
    peak = device.peak_allocated_bytes - before
    least, most = (8 * MIB * (grows - 1), 8 * MIB * (grows + 4)) if grows else (0, 8 * MIB * 5)
    assert least <= peak <= most
    assert any("keeps as much GPU memory" in one.what for one in record.assumptions) == bool(grows)
    assert device.shortage is None
    assert ["of 40" in one.what for one in record.left_out] == [True]


@pytest.mark.slow
def test_an_evaluation_that_fills_the_device_is_short_of_memory(tmp_path: Path) -> None:
    record, device, _ = _evaluated(tmp_path, _logits, total=128 * MIB)
    assert record.outcome == "out-of-memory"
    assert device.shortage.phase == "evaluate"
    assert device.shortage.requested_bytes == 8 * MIB
    assert not _evaluated(tmp_path / "again", _nothing, total=128 * MIB)[1].shortage


@pytest.mark.slow
def test_where_the_data_has_no_length_it_is_said(tmp_path: Path) -> None:
    record, device, _ = _evaluated(tmp_path, _logits, rows=_Stream())
    assert device.shortage is None
    assert ["of ?" in one.what for one in record.left_out] == [True]
