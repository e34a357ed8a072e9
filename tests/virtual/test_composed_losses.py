"""Losses that autocast has to take apart are what PyTorch's own are."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional

from gonogo.virtual.operators.autocast import composed_cross_entropy

CASES = list(itertools.product(("mean", "sum", "none"), (0.0, 0.1), (False, True), ("classes", "probabilities")))


@pytest.mark.parametrize("shape", [(6, 5), (2, 5, 3), (2, 5, 3, 4)], ids=str)
def test_cross_entropy_is_composed_as_atens(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    logits = torch.randn(shape, dtype=torch.double)
    classes = torch.randint(0, 5, (shape[0], *shape[2:]))
    classes.view(-1)[0] = -100
    for reduction, smoothing, weighted, kind in CASES:
        target = classes if kind == "classes" else torch.randn(shape, dtype=torch.double).softmax(1)
        weight = torch.rand(5, dtype=torch.double) if weighted else None
        arguments = {"weight": weight, "reduction": reduction, "label_smoothing": smoothing}
        expected = functional.cross_entropy(logits, target, **arguments)  # type: ignore[arg-type]
        found = composed_cross_entropy(logits, target, **arguments)  # type: ignore[arg-type]
        assert torch.allclose(found, expected), (reduction, smoothing, weighted, kind)


def test_cross_entropy_of_one_sample_is_composed_as_atens() -> None:
    logits, target = torch.randn(5, dtype=torch.double), torch.tensor(3)
    assert torch.allclose(composed_cross_entropy(logits, target), functional.cross_entropy(logits, target))


def test_what_cross_entropy_refuses_is_refused_with_its_words() -> None:
    logits = torch.randn(6, 5)
    with pytest.raises(RuntimeError, match="Expected floating point type for target with class probabilities"):
        composed_cross_entropy(logits, torch.zeros(6, 5, dtype=torch.long))
    with pytest.raises(ValueError, match="Expected input batch_size"):
        composed_cross_entropy(logits, torch.zeros(4, dtype=torch.long))
