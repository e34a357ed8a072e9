"""``torch.ops.npu``: the fused operators of torch_npu, with their shapes and the tensors they save for backward.

Schemas, shapes and dtypes are op-plugin's (torch_npu 2.13.0, ``op_plugin/meta/_meta_registrations.py``). Nothing is
computed: the results' values are unknown. An operator that is not defined here can't be rehearsed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_SOFTMAX_STATS_WIDTH = 8
"""Width of the softmax maximum and sum that the attention kernel saves for each row."""
_DROPOUT_ALIGNMENT = 128
_library: Any = None


@dataclass(frozen=True)
class _NpuOperator:
    """An operator of ``torch.ops.npu``: its schema, its meta function, and what its backward saves."""

    schema: str
    meta: Callable[..., Any]
    """Creates the results on ``meta``."""
    keeps: tuple[int, ...] = ()
    """Positions of the inputs that are saved for backward."""
    keeps_results: tuple[int, ...] = ()
    """Positions of the results that are saved for backward."""
    gradients: tuple[int, ...] = (0,)
    """Positions of the inputs that receive gradients."""

    @property
    def name(self) -> str:
        return self.schema.partition("(")[0]


def define_operators() -> None:
    """Define the operators of ``torch.ops.npu``. Call once per process."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("npu", "DEF")  # type: ignore[no-untyped-call]
    for operator in _OPERATORS:
        _library.define(operator.schema)
        _library.impl(operator.name, operator.meta, "Meta")
        _register_backward(operator)


def is_defined(name: str) -> bool:
    """True if ``torch.ops.npu`` has the operator."""
    return any(operator.name == name for operator in _OPERATORS)


def _register_backward(operator: _NpuOperator) -> None:
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        kept = [inputs[place] for place in operator.keeps] + [results[place] for place in operator.keeps_results]
        ctx.save_for_backward(*(tensor for tensor in kept if isinstance(tensor, torch.Tensor)))
        ctx.count = len(inputs)
        ctx.made = {
            place: (inputs[place].shape, inputs[place].dtype, inputs[place].device)
            for place in operator.gradients
            if isinstance(inputs[place], torch.Tensor)
        }

    def backward(ctx: Any, *gradients: Any) -> Any:
        _ = ctx.saved_tensors  # unpack them as the kernel does, so that saved-tensor hooks (checkpointing) run
        made: list[Any] = [None] * ctx.count
        for place, (shape, dtype, device) in ctx.made.items():
            if ctx.needs_input_grad[place]:
                made[place] = torch.empty(shape, dtype=dtype, device=device)
        return tuple(made)

    torch.library.register_autograd(f"npu::{operator.name}", backward, setup_context=setup_context, lib=_library)


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise RuntimeError(message)


def _fusion_attention(query: Any, key: Any, value: Any, head_num: int, input_layout: str, *rest: Any) -> Any:
    dimensions = {"BSH": 3, "SBH": 3, "BNSD": 4, "BSND": 4, "TND": 3}
    _check(input_layout in dimensions, f"input_layout should be BSH/SBH/BNSD/BSND/TND, but got {input_layout}")
    _check(
        query.dim() == key.dim() == value.dim() == dimensions[input_layout],
        f"The shapes of the input query, key and value should be {dimensions[input_layout]} dimensional, "
        f"but got {query.dim()}-dimensional",
    )
    _check(query.dtype == key.dtype == value.dtype, "query, key and value of npu_fusion_attention differ in dtype")
    shape = list(query.shape)
    if input_layout in ("BSH", "SBH"):
        size = shape[2] // head_num
        heads_of_keys = key.shape[2] // size if size else 0
        shape[2] = head_num * (value.shape[2] // heads_of_keys if heads_of_keys else 0)
    else:
        shape[-1] = value.shape[-1]
    batch, length = {
        "BSH": (query.shape[0], query.shape[1]),
        "SBH": (query.shape[1], query.shape[0]),
        "BNSD": (query.shape[0], query.shape[2]),
        "BSND": (query.shape[0], query.shape[1]),
        "TND": (query.shape[0], 0),
    }[input_layout]
    rows = (
        [batch, head_num, _SOFTMAX_STATS_WIDTH]
        if input_layout == "TND"
        else [batch, head_num, length, _SOFTMAX_STATS_WIDTH]
    )
    return (
        query.new_empty(shape),
        query.new_empty(rows, dtype=torch.float32),
        query.new_empty(rows, dtype=torch.float32),
        query.new_empty([0]),
        0,
        0,
        0,
    )


def _reciprocal_rms(x: Any, gamma: Any) -> Any:
    """One value per row over the dimensions of ``gamma``."""
    outer = x.dim() - gamma.dim()
    return x.new_empty([size if place < outer else 1 for place, size in enumerate(x.shape)], dtype=torch.float32)


def _rms_norm(x: Any, gamma: Any, epsilon: float = 1e-6) -> Any:
    _check(tuple(x.shape[x.dim() - gamma.dim() :]) == tuple(gamma.shape), "gamma must have the shape of input's end")
    return torch.empty_like(x), _reciprocal_rms(x, gamma)


def _add_rms_norm(x1: Any, x2: Any, gamma: Any, epsilon: float = 1e-6) -> Any:
    _check(x1.shape == x2.shape, "x1 and x2 of npu_add_rms_norm must have the same shape")
    return torch.empty_like(x1), _reciprocal_rms(x1, gamma), torch.empty_like(x1)


def _allocate_halved(x: Any, dim: int) -> Any:
    shape = list(x.shape)
    _check(shape[dim] % 2 == 0, f"x shape: {shape}. Dim [{dim}] of x should be divisible by 2, but get [{shape[dim]}]")
    shape[dim] //= 2
    return x.new_empty(shape)


def _confusion_transpose(x: Any, perm: list[int], shape: list[int], transpose_first: bool) -> Any:
    if transpose_first:
        return x.new_empty(shape)
    return x.new_empty([shape[place] for place in perm])


def _npu_dropout(x: Any, p: float) -> Any:
    aligned = math.ceil(x.numel() / _DROPOUT_ALIGNMENT) * _DROPOUT_ALIGNMENT
    return torch.empty_like(x), x.new_empty([aligned // 8], dtype=torch.uint8)


def _moe_token_permute(tokens: Any, indices: Any, num_out_tokens: int | None = None, padded_mode: bool = False) -> Any:
    count = num_out_tokens or indices.numel()
    count = count if count > 0 else indices.numel() + count
    return tokens.new_empty([count, tokens.shape[1]]), tokens.new_empty([indices.numel()], dtype=torch.int32)


def _moe_token_unpermute(permuted: Any, sorted_indices: Any, probs: Any = None, *rest: Any) -> Any:
    rows = sorted_indices.shape[0] if probs is None else probs.shape[0]
    return permuted.new_empty([rows, permuted.shape[-1]])


_OPERATORS = (
    _NpuOperator(
        "npu_fusion_attention(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, "
        "Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, float scale=1., float keep_prob=1., "
        "int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, int[]? prefix=None, "
        "int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, "
        'bool sync=False, str softmax_layout="", Tensor? sink=None) -> (Tensor, Tensor, Tensor, Tensor, int, int, int)',
        _fusion_attention,
        keeps=(0, 1, 2, 5, 6, 7),
        keeps_results=(0, 1, 2),
        gradients=(0, 1, 2),
    ),
    _NpuOperator(
        "npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
        _rms_norm,
        keeps=(0, 1),
        keeps_results=(1,),
        gradients=(0, 1),
    ),
    _NpuOperator(
        "npu_gemma_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
        _rms_norm,
        keeps=(0, 1),
        keeps_results=(1,),
        gradients=(0, 1),
    ),
    _NpuOperator(
        "npu_add_rms_norm(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)",
        _add_rms_norm,
        keeps=(2,),
        keeps_results=(1, 2),
        gradients=(0, 1, 2),
    ),
    _NpuOperator(
        "npu_rotary_mul(Tensor self, Tensor r1, Tensor r2, str rotary_mode='half', Tensor? rotate=None) -> Tensor",
        lambda x, r1, r2, rotary_mode="half", rotate=None: x.new_empty(x.shape),
        keeps=(0, 1, 2),
        gradients=(0, 1, 2),
    ),
    _NpuOperator(
        "npu_swiglu(Tensor self, int dim=-1) -> Tensor", lambda x, dim=-1: _allocate_halved(x, dim), keeps=(0,)
    ),
    _NpuOperator(
        "npu_geglu(Tensor self, int dim=-1, int approximate=1, bool activate_left=False) -> (Tensor, Tensor)",
        lambda x, dim=-1, approximate=1, activate_left=False: (_allocate_halved(x, dim), _allocate_halved(x, dim)),
        keeps=(0,),
        keeps_results=(1,),
    ),
    _NpuOperator(
        "npu_gelu(Tensor self, *, str approximate='none') -> Tensor",
        lambda x, approximate="none": torch.empty_like(x),
        keeps=(0,),
    ),
    _NpuOperator("npu_fast_gelu(Tensor self) -> Tensor", torch.empty_like, keeps=(0,)),
    _NpuOperator("npu_silu(Tensor self) -> Tensor", torch.empty_like, keeps=(0,), keeps_results=(0,)),
    _NpuOperator(
        "npu_scaled_masked_softmax(Tensor x, Tensor mask, Scalar scale=1, bool fixed_triu_mask=False) -> Tensor",
        lambda x, mask, scale=1, fixed_triu_mask=False: torch.empty_like(x),
        keeps=(1,),
        keeps_results=(0,),
    ),
    _NpuOperator(
        "npu_confusion_transpose(Tensor self, int[] perm, int[] shape, bool transpose_first) -> Tensor",
        _confusion_transpose,
    ),
    _NpuOperator("npu_format_cast(Tensor self, int acl_format) -> Tensor", lambda x, acl_format: torch.empty_like(x)),
    _NpuOperator("_npu_dropout(Tensor self, float p) -> (Tensor, Tensor)", _npu_dropout, keeps_results=(1,)),
    _NpuOperator(
        "npu_moe_token_permute(Tensor tokens, Tensor indices, int? num_out_tokens=None, bool padded_mode=False) -> "
        "(Tensor, Tensor)",
        _moe_token_permute,
        keeps=(1,),
        keeps_results=(1,),
    ),
    _NpuOperator(
        "npu_moe_token_unpermute(Tensor permuted_tokens, Tensor sorted_indices, Tensor? probs=None, bool "
        "padded_mode=False, int[]? restore_shape=None) -> Tensor",
        _moe_token_unpermute,
        keeps=(0, 1, 2),
        gradients=(0, 2),
    ),
)
