"""Jagged nested tensors on accelerators, as in verl: autograd goes through them, and the process lives on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from virtual.worlds import virtual_session

LENGTHS = (3, 5, 2)


@pytest.fixture(autouse=True)
def session(tmp_path: Path) -> Iterator[None]:
    with virtual_session(tmp_path):
        yield


def _rows() -> torch.Tensor:
    rows: torch.Tensor = torch.nested.as_nested_tensor([torch.arange(n) for n in LENGTHS], layout=torch.jagged)
    return rows


def test_rows_of_a_collator_keep_their_lengths_on_the_device() -> None:
    rows = _rows()
    assert (rows.device.type, rows.is_cuda) == ("cpu", False)
    moved = rows.to("cuda:1")
    assert (str(moved.device), moved.is_cuda, moved.is_cpu, moved.is_meta, moved.get_device()) == (
        "cuda:1", True, False, False, 1,
    )  # fmt: skip
    assert moved.offsets().diff().tolist() == list(LENGTHS)
    assert [row.tolist() for row in moved.unbind(0)] == [list(range(n)) for n in LENGTHS]
    padded = torch.nested.to_padded_tensor(moved, 0.0, output_size=(3, 6))
    assert (padded.shape, str(padded.device)) == ((3, 6), "cuda:1")


def test_a_loss_of_jagged_scores_has_gradients() -> None:
    rows = _rows().to("cuda")
    embedding = torch.nn.Embedding(10, 4, device="cuda")
    scores = embedding(rows.values()).float().sum(-1)
    jagged = torch.nested.nested_tensor_from_jagged(scores, rows.offsets())  # in C++ with a device that it has to know
    assert jagged.requires_grad
    mask = torch.nested.nested_tensor_from_jagged(torch.ones(10, device="cuda"), rows.offsets())
    (jagged * mask).values().sum().backward()
    assert embedding.weight.grad is not None
    assert (embedding.weight.grad.shape, embedding.weight.grad.device.type) == ((10, 4), "cuda")
