"""Token ids and labels beyond their tables fail as on an accelerator; what is not known is taken to fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from virtual.worlds import virtual_session

from gonogo.virtual.ranks.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with virtual_session(tmp_path) as session:
        yield session


def test_ids_beyond_an_embedding(session: Session) -> None:
    table = torch.nn.Embedding(10, 4, padding_idx=0).cuda()
    table(torch.tensor([0, 9]).cuda()).sum().backward()
    with pytest.raises(RuntimeError, match=r"srcIndex < srcSelectDimSize.*index 10 of a table of 10 rows"):
        table(torch.tensor([[3, 10]]).cuda())
    with pytest.raises(RuntimeError, match="device-side assert triggered"):
        table(torch.tensor([-100]).cuda())
    unknown = torch.randn(3, 12, device="cuda").argmax(-1)
    assert table(unknown).shape == (3, 4)


def test_labels_beyond_the_classes(session: Session) -> None:
    logits = torch.randn(4, 3, device="cuda")
    functional.cross_entropy(logits, torch.tensor([0, 1, 2, -100]).cuda())
    with pytest.raises(RuntimeError, match="label 3 of 3 classes"):
        functional.cross_entropy(logits, torch.tensor([0, 1, 2, 3]).cuda())
    images = torch.randn(2, 3, 5, 5, device="cuda")
    functional.cross_entropy(images, torch.full((2, 5, 5), 255).cuda(), ignore_index=255)
    with pytest.raises(RuntimeError, match="label 255 of 3 classes"):
        functional.cross_entropy(images, torch.full((2, 5, 5), 255).cuda())
