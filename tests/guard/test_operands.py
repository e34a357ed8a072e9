"""The tensors of the line that failed, as they are written there."""

from __future__ import annotations

from types import TracebackType

import pytest
import torch
from torch import nn

from gonogo.guard.tensors.modules import Names
from gonogo.guard.tensors.operands import failure_operands


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4)])
        self.register_buffer("shift", torch.ones(5))
        self.kept = {"bias": torch.ones(7)}

    @property
    def secret(self) -> torch.Tensor:
        raise AssertionError("no code of the program's is run")

    def shifted(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.ones(2, 4)
        return hidden + self.shift * 2

    def of_layer(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones(2, 9) @ self.layers[0].weight.t()

    def of_dictionary(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.kept["bias"]

    def sliced(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :2] + self.shift

    def of_property(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError(x.shape, lambda: self.secret)

    def through_a_layer(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x.t())


def failure(model: Inner, what: str) -> TracebackType | None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 (whichever it is)
        getattr(model, what)(torch.ones(2, 3))
    return raised.value.__traceback__


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("shifted", {"hidden": None, "self.shift": "shift"}),
        ("of_layer", {"self.layers[0].weight": "layers.0.weight"}),
        ("of_dictionary", {"x": None, "self.kept['bias']": None}),
        ("sliced", {"x": None, "self.shift": "shift"}),
        ("of_property", {"x": None}),
        ("through_a_layer", {"input": None, "self.weight": "first.weight", "self.bias": "first.bias"}),
    ],
)
def test_operands(what: str, expected: dict[str, str | None]) -> None:
    model = Inner()
    found = failure_operands(failure(model, what), Names(model))
    assert {one.name: one.parameter for one in found} == expected


def test_a_view_of_a_parameter_has_its_name() -> None:
    model = Inner()
    names = Names(model)
    assert names.tensor_name_and_kind(model.first.weight.data.view(-1)) == ("first.weight", "parameter")
    assert names.tensor_name_and_kind(torch.ones(3)) == (None, "unknown")
    assert names.module_path(model.layers[0]) == "layers.0"
    assert names.module_path(model) == "Inner"
    assert names.module_path(nn.Linear(1, 1)) is None
