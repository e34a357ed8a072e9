"""The first value that is not finite, in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from gonogo.evidence.guarded.files import read_run
from gonogo.evidence.guarded.records import NonFiniteRecord, WarningRecord
from gonogo.guard.common.writer import RecordWriter
from gonogo.guard.injection import GuardOptions
from gonogo.guard.rank.worker import Guard
from gonogo.guard.tensors.nonfinite import look_for_nonfinite


class Logarithm(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.log()


class Masked(nn.Module):
    """Its output is full of infinities, as a mask's is, and nothing is wrong."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(x < 0, float("-inf"))


class Root(torch.autograd.Function):
    """Its gradient at 0 is not a number."""

    @staticmethod
    def forward(context: object, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(context: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * float("nan")


class Rooted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Root.apply(x)  # type: ignore[no-any-return,no-untyped-call]


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    one = Guard(str(tmp_path), GuardOptions(nonfinite=True))
    one.writer = RecordWriter(str(tmp_path), 0)
    return one


def found(guard: Guard, model: nn.Module, *batches: torch.Tensor) -> tuple[list[NonFiniteRecord], list[WarningRecord]]:
    look_for_nonfinite(guard, model)
    for batch in batches:
        loss = model(batch).mean()
        guard.check_loss(loss)
        loss.backward()
        guard.record_step(guard.step + 1)
    guard._look_for_loss()
    assert guard.writer is not None
    guard.writer.flush()
    [rank] = read_run(guard.folder).ranks
    return rank.nonfinite, rank.warnings


def test_the_module_where_it_began(guard: Guard) -> None:
    model = nn.Sequential(nn.Identity(), Logarithm(), nn.Linear(2, 2))
    (activation, loss), [warning] = found(guard, model, torch.ones(1, 2), -torch.ones(1, 2))
    assert (activation.what, activation.module, activation.module_class) == ("activation", "1", "Logarithm")
    assert (activation.inputs_finite, activation.nan, activation.elements, activation.step) == (True, 2, 2, 1)
    assert (loss.what, loss.step) == ("loss", 1)
    assert (warning.what, warning.value, warning.step) == ("nonfinite-loss", "nan", 1)


def test_a_parameter_that_is_not_finite_is_named(guard: Guard) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with torch.no_grad():
        model[1].bias[0] = float("inf")
    (activation, _), _ = found(guard, model, torch.ones(1, 2))
    assert (activation.module, activation.parameter, activation.infinite) == ("1", "1.bias", 1)


def test_a_gradient_where_the_loss_is_finite(guard: Guard) -> None:
    model = nn.Sequential(nn.Linear(2, 2), Rooted(), nn.Linear(2, 2))
    [gradient], warnings = found(guard, model, torch.ones(1, 2))
    assert (gradient.what, gradient.module) == ("gradient", "0")
    assert gradient.parameter in ("0.weight", "0.bias")
    assert warnings == []


def test_infinities_that_harm_nothing_are_not_told(guard: Guard) -> None:
    model = nn.Sequential(nn.Linear(2, 2), Masked(), nn.Softmax(dim=-1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))  # one of two is masked: of both nothing is left
        model[0].bias.zero_()
    assert found(guard, model, torch.ones(1, 2), torch.ones(1, 2)) == ([], [])
