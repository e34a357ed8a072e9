"""Apex as Megatron-Core asks for it: found for it alone; what its layer norms keep; gradients added up in a product."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest
import torch
from virtual.worlds import virtual_session

from gonogo.virtual.ranks.session import Session

ROWS, SIZE = 256, 1024


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with virtual_session(tmp_path_factory.mktemp("scratch")) as session:
        yield session


@pytest.fixture
def megatron(session: Session) -> Iterator[None]:
    """As if the program had imported Megatron-Core."""
    sys.modules["megatron.core"] = ModuleType("megatron.core")
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in ("apex", "megatron")]:
            del sys.modules[name]


def on_gpu(*shape: int, grad: bool = False) -> Any:
    return torch.ones(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=grad)


def test_it_is_there_for_megatron_core_alone(session: Session) -> None:
    assert find_spec("apex") is None


def test_other_parts_of_it_are_missing(megatron: None) -> None:
    assert find_spec("apex") is not None
    with pytest.raises(ImportError):
        importlib.import_module("apex.optimizers")


@pytest.mark.parametrize("of_output", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_layer_norm_keeps_its_input_or_its_output(megatron: None, persistent: bool, of_output: bool) -> None:
    if persistent:
        function = importlib.import_module("apex.contrib.layer_norm.layer_norm").FastLayerNormFN
    else:
        function = importlib.import_module("apex.normalization.fused_layer_norm").FusedLayerNormAffineFunction
    weight, bias = on_gpu(SIZE, grad=True), on_gpu(SIZE, grad=True)
    inputs = on_gpu(ROWS, SIZE, grad=True)
    settings = (1e-5, of_output) if persistent else (torch.Size([SIZE]), 1e-5, of_output)
    before = torch.cuda.memory_allocated()
    out = function.apply(inputs, weight, bias, *settings)
    statistics = (1 if of_output else 2) * ROWS * 4
    assert torch.cuda.memory_allocated() - before == ROWS * SIZE * 2 + statistics
    out.sum().backward()
    assert inputs.grad.shape == inputs.shape
    assert weight.grad.shape == bias.grad.shape == (SIZE,)


def test_weights_gradients_are_added_up_in_place(session: Session) -> None:
    add = importlib.import_module("fused_weight_gradient_mlp_cuda").wgrad_gemm_accum_fp32
    main = torch.zeros(8, 16, device="cuda")
    before = torch.cuda.memory_allocated()
    inputs, gradient = on_gpu(4, 16), on_gpu(4, 8)
    held = torch.cuda.memory_allocated() - before
    add(inputs, gradient, main)
    assert torch.cuda.memory_allocated() - before == held
    assert session.mode.known_values(main) is None
    with pytest.raises(RuntimeError, match="main_grad must have shape"):
        add(inputs, gradient, torch.zeros(16, 8, device="cuda"))
