"""TorchScript functions are run as Python; modules are still compiled."""

from __future__ import annotations

import torch

from gonogo.virtual import scripting


def doubled(x: torch.Tensor, *, twice: bool) -> torch.Tensor:
    return torch.zeros(2) + x * (2 if twice else 1)


def test_a_function_stays_as_it_is_and_a_module_is_compiled() -> None:
    undo = scripting.install()
    try:
        assert torch.jit.script(doubled) is doubled
        assert isinstance(torch.jit.script(torch.nn.Linear(2, 2)), torch.jit.ScriptModule)
    finally:
        undo()
    assert torch.jit.script(doubled) is not doubled
