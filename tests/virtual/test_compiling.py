"""``torch.compile`` of a function begins when the function is first called."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from virtual.worlds import virtual_session

from gonogo.virtual.operators import compiling


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What torch's own ``compile`` was given, in order."""
    calls: list[Any] = []

    def real(model: Any = None, **options: Any) -> Any:
        calls.append(model)
        return model if model is not None else lambda function: torch.compile(function, **options)

    monkeypatch.setattr(torch, "compile", real)
    undo = compiling.install()
    yield calls
    undo()


def twice(number: int) -> int:
    return number * 2


def test_a_function_is_compiled_once_and_when_it_is_called(begun: list[Any]) -> None:
    compiled = torch.compile(twice, dynamic=True)
    assert compiled.__name__ == "twice"
    assert begun == []
    assert [compiled(2), compiled(3)] == [4, 6]
    assert begun == [twice]


def test_all_else_is_compiled_at_once(begun: list[Any]) -> None:
    module = torch.nn.Linear(2, 2)
    torch.compile(module)
    torch.compile(twice, backend="eager")
    assert begun == [module, twice]


def test_a_module_is_wrapped_as_in_a_run(tmp_path: Path) -> None:
    """Its parameters go by ``_orig_mod.``, and the module inside can be had back."""
    bare = torch.nn.Linear(2, 2)
    real = torch.compile(bare, backend="eager")
    with virtual_session(tmp_path):
        module = torch.nn.Linear(2, 2, device="cuda")
        compiled = torch.compile(module)
        assert type(compiled) is type(real)
        assert list(compiled.state_dict()) == list(real.state_dict())
        assert compiled._orig_mod is module
        compiled(torch.ones(1, 2, device="cuda")).sum().backward()
        assert module.weight.grad is not None
