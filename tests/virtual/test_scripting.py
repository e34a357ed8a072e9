"""TorchScript functions and classes are run as Python; modules are still compiled."""

from __future__ import annotations

import pytest
import torch

from gonogo.virtual.operators import compiling


def doubled(x: torch.Tensor, *, twice: bool) -> torch.Tensor:
    return torch.zeros(2) + x * (2 if twice else 1)


class Doubling:
    def __init__(self) -> None:
        self.by = torch.tensor(2.0)

    def of(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by


class Shifted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.zeros(2) + torch.tensor([1.0, 2.0])


def test_a_function_or_class_stays_as_it_is_and_a_module_is_compiled() -> None:
    undo = compiling.install_scripting()
    try:
        assert torch.jit.script(doubled) is doubled
        assert torch.jit.script(Doubling) is Doubling
        assert isinstance(torch.jit.script(torch.nn.Linear(2, 2)), torch.jit.ScriptModule)
    finally:
        undo()
    assert torch.jit.script(doubled) is not doubled


def test_a_module_that_calls_what_stands_replaced_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("zeros", "tensor"):
        original = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *args, original=original, **kwargs: original(*args, **kwargs))
    undo = compiling.install_scripting()
    try:
        assert torch.jit.script(Shifted())(torch.ones(2)).tolist() == [2.0, 3.0]
    finally:
        undo()
