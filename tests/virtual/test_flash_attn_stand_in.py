"""The stand-in for flash-attn has all names of the real package's Python; those most used do what they do there."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from virtual.worlds import virtual_session

import gonogo.virtual.stand_ins as stand_ins
from gonogo.virtual.ranks.session import Session
from gonogo.virtual.unsupported import UnsupportedOperator

TABLE = Path(*stand_ins.__path__) / "flash_attn" / "names.json"
"""Made from the real package's source."""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    if find_spec("flash_attn") is not None:
        pytest.fail("flash-attn is installed here: the stand-in is not what is found")
    with virtual_session(tmp_path_factory.mktemp("scratch")) as session:
        yield session


def on_gpu(*shape: int, grad: bool = False) -> Any:
    return torch.zeros(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=grad)


@pytest.mark.slow
def test_every_name_of_the_real_package_can_be_imported(session: Session) -> None:
    missing = []
    for name, row in json.loads(TABLE.read_text(encoding="utf-8"))["modules"].items():
        module = importlib.import_module(name)
        names = [*row.get("functions", ()), *row.get("classes", ()), *row.get("values", ()), *row.get("imported", ())]
        missing += [f"{name}.{each}" for each in names if not hasattr(module, each)]
        assert not hasattr(module, "no_such_name")
    assert missing == []
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("flash_attn.no_such_module")


def test_what_has_a_name_only_says_so_when_it_is_used(session: Session) -> None:
    from flash_attn.flash_attn_interface import FlashAttnFunc
    from flash_attn.modules.mha import MHA
    from flash_attn.ops.fused_dense import fused_mlp_func

    for use in (lambda: MHA(64, 8), lambda: FlashAttnFunc.apply(1), lambda: fused_mlp_func(1)):
        with pytest.raises(UnsupportedOperator, match="flash-attn is not installed here"):
            use()
    assert not isinstance(nn.Linear(2, 2), MHA)


def test_padding_of_rows_that_hold_several_sequences(session: Session) -> None:
    from flash_attn.bert_padding import index_first_axis, rearrange, repeat, unpad_input_for_concatenated_sequences

    states = torch.arange(12.0).reshape(2, 6, 1)
    lengths = torch.tensor([[2, 3, 0, 0, 0, 0], [4, 0, 0, 0, 0, 0]])
    tokens, indices, starts, longest = unpad_input_for_concatenated_sequences(states, lengths)
    assert indices.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert (starts.tolist(), longest) == ([0, 2, 5, 9], 4)
    assert tokens.flatten().tolist() == indices.tolist()
    again = index_first_axis(rearrange(states, "b s d -> (b s) d"), indices)
    assert again.tolist() == tokens.tolist()
    assert repeat(states, "b s d -> b s (2 d)").shape == (2, 6, 2)


def test_losses_and_norms_have_gradients_of_the_right_shape(session: Session) -> None:
    from flash_attn.losses.cross_entropy import CrossEntropyLoss
    from flash_attn.ops.rms_norm import rms_norm
    from flash_attn.ops.triton.layer_norm import RMSNorm, layer_norm_fn

    logits = on_gpu(4, 10, grad=True)
    loss = CrossEntropyLoss(inplace_backward=True)(logits, torch.tensor([1, 2, -100, 3], device="cuda"))
    assert (loss.shape, loss.dtype) == ((), torch.float32)
    loss.backward()
    assert logits.grad.shape == (4, 10)
    x, residual = on_gpu(2, 3, 8, grad=True), on_gpu(2, 3, 8, grad=True)
    norm = RMSNorm(8, device="cuda", dtype=torch.bfloat16)
    out, summed = norm(x, residual, prenorm=True, residual_in_fp32=True)
    assert (out.dtype, summed.dtype) == (torch.bfloat16, torch.float32)
    (
        out.sum() + summed.sum() + layer_norm_fn(x, norm.weight, None).sum() + rms_norm(x, norm.weight, 1e-5).sum()
    ).backward()
    assert x.grad.shape == residual.grad.shape == (2, 3, 8)
    assert norm.weight.grad.shape == (8,)


def test_rotation_in_place_and_the_kernels_own_functions(session: Session) -> None:
    from flash_attn.flash_attn_interface import (
        _flash_attn_backward,
        _flash_attn_forward,
        _flash_attn_varlen_backward,
        _flash_attn_varlen_forward,
    )
    from flash_attn.layers.rotary import apply_rotary_emb_qkv_

    given = on_gpu(2, 4, 3, 2, 8, grad=True)
    cos = on_gpu(4, 4)
    rotated = apply_rotary_emb_qkv_(given * 1, cos, cos)
    rotated.sum().backward()
    assert given.grad.shape == given.shape
    q = on_gpu(2, 128, 4, 64)
    out, lse, _, state = _flash_attn_forward(q, q, q, 0.0, 0.125, True, -1, -1, 0.0, None, False)
    assert (out.shape, lse.shape) == (q.shape, (2, 4, 128))
    _flash_attn_backward(q, q, q, q, out, lse, None, None, None, 0.0, 0.125, True, -1, -1, 0.0, None, False, state)
    packed = on_gpu(256, 4, 64)
    starts = torch.tensor([0, 128, 256], dtype=torch.int32, device="cuda")
    lengths = (starts, starts, 128, 128, 0.0, 0.125)
    out, lse, _, state = _flash_attn_varlen_forward(packed, packed, packed, *lengths, True)
    assert out.shape == packed.shape
    gradients = [torch.empty_like(packed) for _ in range(3)]
    masks = (True, -1, -1, 0.0, None, False)
    _flash_attn_varlen_backward(packed, packed, packed, packed, out, lse, *gradients, *lengths, *masks, state)
