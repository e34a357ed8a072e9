"""Assembles the module ``transformer_engine_torch``; names that are not covered raise an error when used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from gonogo.virtual.kernels.flops import Computed, ignore_flops
from gonogo.virtual.kernels.transformer_engine.attention import Attention
from gonogo.virtual.kernels.transformer_engine.compiled_functions import CompiledFunctions
from gonogo.virtual.kernels.transformer_engine.constants import ENUMERATIONS
from gonogo.virtual.kernels.transformer_engine.elementwise import Activations, Dropout, Norms, Rotary, Softmax
from gonogo.virtual.kernels.transformer_engine.experts import Permutation, Router
from gonogo.virtual.kernels.transformer_engine.grouped_tensors import GroupedTensors
from gonogo.virtual.kernels.transformer_engine.optimizers import Optimizers
from gonogo.virtual.kernels.transformer_engine.products import Gemms
from gonogo.virtual.kernels.transformer_engine.quantized import NOT_COVERED
from gonogo.virtual.kernels.transformer_engine.recipes import Recipes
from gonogo.virtual.kernels.transformer_engine.sequences import Sequences
from gonogo.virtual.unsupported import UnsupportedOperator
from gonogo.virtual.values.assumptions import Assume

NAME = "transformer_engine_torch"
_MODULE_PARTS = (
    *(Gemms, GroupedTensors, Norms, Activations, Rotary, Softmax, Dropout, Attention, Router, Permutation),
    *(Optimizers, Sequences, Recipes),
)
_QUANTIZATION_FUNCTIONS = """
bgrad_group_quantize get_device_pointer_for_data_and_scales group_dequantize group_quantize group_requantize_inplace
grouped_swizzle_for_gemm multi_tensor_compute_scale_and_scale_inv multi_tensor_compute_scale_inv_e8m0
multi_tensor_swizzle_scales_for_gemm_ multi_tensor_swizzle_scales_for_gemm_unchecked_ nvfp4_2d_compute_partial_amax
nvfp4_2d_multi_tensor_transpose nvfp4_2d_partial_cast nvfp4_2d_scale_transpose nvfp4_compute_global_scale
nvfp4_compute_per_block_scale nvfp4_data_transpose nvfp4_expand_scale_to_fp8 nvfp4_fused_scale
nvfp4_group_quantize_with_amax nvfp4_multi_tensor_2d_partial_cast nvfp4_multi_tensor_compute_partial_amax
nvfp4_multi_tensor_fused_scale nvfp4_quantize_with_amax
"""
_OTHER_FUNCTIONS = """
bulk_overlap_ag_with_external_gemm convert_host_pointers_to_tensor create_nvshmem_tensor
cusolvermp_ctx_create cusolvermp_ctx_destroy init_nvshmem_backend newton_schulz nvshmem_finalize
nvshmem_send_on_current_stream nvshmem_wait_on_current_stream
fused_moe_aux_loss_fwd_graph_safe fused_topk_with_score_function_qb_fwd
thd_copy_valid_tokens_from_per_split_to_rank_local thd_cp_rank_order_to_sequence_order
thd_sequence_order_to_cp_rank_order scaled_clamped_dswiglu scaled_clamped_swiglu scaled_dsituglu scaled_dsrelu
scaled_dswiglu scaled_situglu scaled_srelu scaled_swiglu
"""
_COMM_OVERLAP_CLASSES = (
    "CommOverlapHelper CommOverlapCore CommOverlapBase CommOverlapP2PBase CommOverlap CommOverlapP2P"
)


class _FP8TensorMeta:
    """The scales of FP8 tensors."""

    scale: Any = None
    scale_inv: Any = None
    amax_history: Any = None


def make_module(
    mark_written: Callable[[torch.Tensor], object],
    assume: Assume,
    compute_capability: tuple[int, int],
    count_flops: Computed = ignore_flops,
) -> ModuleType:
    """Build the module for devices of one compute capability."""
    module = ModuleType(NAME, __doc__)
    names: dict[str, Any] = {**ENUMERATIONS, "FP8TensorMeta": _FP8TensorMeta, **_device_query_functions()}
    names |= {
        name: _unsupported_function(name) for name in (*_QUANTIZATION_FUNCTIONS.split(), *_OTHER_FUNCTIONS.split())
    }
    names |= {name: type(name, (_UnsupportedClass,), {}) for name in _COMM_OVERLAP_CLASSES.split()}
    for part in _MODULE_PARTS:
        names |= _public_functions(part(mark_written, assume, compute_capability, count_flops))
    for name, value in names.items():
        setattr(module, name, value)
    return module


def _public_functions(part: CompiledFunctions) -> dict[str, Callable[..., Any]]:
    found = {name: getattr(part, name) for name in vars(type(part)) if not name.startswith("_") and name != "functions"}
    return found | (part.functions() if hasattr(part, "functions") else {})


def _device_query_functions() -> dict[str, Callable[..., Any]]:
    return {
        "device_supports_multicast": lambda device=-1: False,
        "ubuf_built_with_mpi": lambda: False,
        "nvte_built_with_cublasmp": lambda: False,
        "get_stream_priority_range": lambda device=-1: (0, -5),
    }


def _unsupported_function(name: str) -> Callable[..., Any]:
    def raise_not_covered(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperator(f"transformer_engine_torch.{name}", NOT_COVERED)

    raise_not_covered.__name__ = name
    return raise_not_covered


class _UnsupportedClass:
    """Placeholder for a class that is not covered: creating an instance raises ``UnsupportedOperator``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedOperator(f"transformer_engine_torch.{type(self).__name__}", NOT_COVERED)


__all__: Sequence[str] = ("NAME", "make_module")
