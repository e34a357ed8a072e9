"""A rank of Megatron's that reads no data: rank 0 tells it whether there are any; alone, its settings do."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gonogo.virtual.hooks import megatron
from gonogo.virtual.tensor import VirtualTensor

SETTINGS = {"train_iters": 100, "eval_iters": 10, "do_train": 0, "do_valid": 0, "do_test": 0}


def flags_of(monkeypatch: pytest.MonkeyPatch, rank: int, loader: Any = None, **given: Any) -> tuple[bool, bool, int]:
    """Whether it trains, whether it evaluates, and how much was assumed."""
    state: Any = ModuleType("megatron.core.parallel_state")
    state.get_tensor_model_parallel_rank = lambda: rank
    monkeypatch.setitem(sys.modules, state.__name__, state)
    assumed: list[Any] = []
    monkeypatch.setattr(VirtualTensor, "virtual_mode", SimpleNamespace(ledger=SimpleNamespace(assume=assumed.append)))
    settings = SimpleNamespace(**{**SETTINGS, **given})
    build = megatron._wrap_data_provider(lambda provider: (loader, loader, loader), lambda: settings)
    assert build("provider") == (loader, loader, loader)
    return bool(settings.do_train), bool(settings.do_valid), len(assumed)


def test_a_rank_without_data_trains_as_its_group_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert flags_of(monkeypatch, 1) == (True, True, 3)
    assert flags_of(monkeypatch, 1, eval_iters=0) == (True, False, 1)
    assert flags_of(monkeypatch, 1, skip_train=True) == (False, True, 2)
    assert flags_of(monkeypatch, 1, do_train=1, do_valid=1, do_test=1) == (True, True, 0)


def test_a_rank_that_reads_data_keeps_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert flags_of(monkeypatch, 0) == (False, False, 0)
    assert flags_of(monkeypatch, 1, loader=object()) == (False, False, 0)
