"""Which private interfaces of torch and safetensors gonogo leans on, and whether they are still as it expects."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gonogo.virtual import private
from gonogo.virtual.weights import private_serialization


def test_private_interfaces_of_torch_are_as_expected() -> None:
    moved = private.missing_private_interfaces()
    assert moved == [], f"moved in torch {torch.__version__}: {', '.join(moved)}"


def test_private_interfaces_of_saving_are_as_expected() -> None:
    moved = private_serialization.missing_interfaces()
    assert moved == [], f"moved beside torch {torch.__version__}: {', '.join(moved)}"


def test_a_moved_interface_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.serialization, "_check_dill_version")

    def gone() -> None:
        raise AttributeError("it is not there")

    monkeypatch.setattr(private, "decompositions", gone)
    assert private.missing_private_interfaces() == [
        "torch._decomp.decomposition_table: AttributeError: it is not there"
    ]
    assert private_serialization.missing_interfaces() == ["torch.serialization._check_dill_version"]


def test_operators_on_lists_have_shapes_where_torch_has_no_kernel() -> None:
    tensors = [torch.empty(3, device="meta"), torch.empty(2, 4, device="meta")]
    assert private._foreach_on_meta("aten::_foreach_div_", (tensors, [1.0, 2.0])) is None
    for name, operator in (("sqrt", torch._foreach_sqrt), ("norm", torch._foreach_norm)):
        found = private._foreach_on_meta(f"aten::_foreach_{name}", (tensors,))
        assert found is not None
        assert [tensor.shape for tensor in found] == [tensor.shape for tensor in operator(tensors)]


def test_a_marked_tensor_is_a_parameter_and_nothing_more() -> None:
    marked: Any = torch.empty(0)
    marked._is_param = True
    is_one = private.parameter_instance_check() or (lambda cls, instance: isinstance(instance, cls))
    assert is_one(torch.nn.Parameter, marked)
    assert not is_one(torch.nn.parameter.UninitializedParameter, marked)
