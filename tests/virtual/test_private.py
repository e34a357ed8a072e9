"""Which private interfaces of torch and safetensors gonogo leans on, and whether they are still as it expects."""

from __future__ import annotations

import pytest
import torch

from gonogo.virtual import private
from gonogo.virtual.weights import private_serialization


def test_private_interfaces_of_torch_are_as_expected() -> None:
    moved = private.check()
    assert moved == [], f"moved in torch {torch.__version__}: {', '.join(moved)}"


def test_private_interfaces_of_saving_are_as_expected() -> None:
    moved = private_serialization.check()
    assert moved == [], f"moved beside torch {torch.__version__}: {', '.join(moved)}"


def test_a_moved_interface_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.serialization, "_check_dill_version")

    def gone() -> None:
        raise AttributeError("it is not there")

    monkeypatch.setattr(private, "decompositions", gone)
    assert private.check() == ["torch._decomp.decomposition_table: AttributeError: it is not there"]
    assert private_serialization.check() == ["torch.serialization._check_dill_version"]
