"""The enumerations of Transformer Engine's compiled module, with the values in its headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

import torch

TORCH_DTYPES = {
    0: torch.uint8, 1: torch.int16, 2: torch.int32, 3: torch.int64, 4: torch.float32, 5: torch.float16,
    6: torch.bfloat16,
}  # fmt: skip
_DTYPES = {
    "kByte": 0,
    "kInt32": 2,
    "kFloat32": 4,
    "kFloat16": 5,
    "kBFloat16": 6,
    "kFloat8E4M3": 7,
    "kFloat8E5M2": 8,
    "kFloat4E2M1": 10,
}
"""The dtypes that the module has; Transformer Engine's Python code compares its own with them."""
_FORMATS = ("SBHD", "BSHD", "THD", "BSHD_2SBHD", "SBHD_2BSHD", "THD_2BSHD", "THD_2SBHD", "BHSD", "QKV_Format_NOT_SET")
_MIXED_LAYOUTS = ("SBHD_BSHD_BSHD", "BSHD_SBHD_SBHD", "THD_BSHD_BSHD", "THD_SBHD_SBHD")
_PAGED = ("BSHD_BSHD_BSHD", "BSHD_SBHD_SBHD", "SBHD_BSHD_BSHD", "SBHD_SBHD_SBHD", "THD_BSHD_BSHD", "THD_SBHD_SBHD")
_MASKS = (
    *("NO_MASK", "PADDING_MASK", "CAUSAL_MASK", "PADDING_CAUSAL_MASK"),
    *("CAUSAL_BOTTOM_RIGHT_MASK", "PADDING_CAUSAL_BOTTOM_RIGHT_MASK"),
)
_OVERLAPS = (
    *("BULK_OVERLAP_AG", "BULK_OVERLAP_RS", "SPLIT_PIPELINED_AG_P2P", "SPLIT_PIPELINED_RS", "SPLIT_PIPELINED_RS_P2P"),
    *("ATOMIC_GEMM_RS", "ATOMIC_GEMM_AG_P2P", "ATOMIC_GEMM_RS_P2P", "EXTERNAL_BULK_OVERLAP_AG"),
)
_GEMMS = range(1, 4)


def _qkv_layout_names() -> list[str]:
    found = []
    for tokens in ("SB", "BS", "T"):
        whole = f"{tokens}HD"
        found += [f"{tokens}3HD", f"{tokens}H3D", f"{whole}_{tokens}2HD", f"{whole}_{tokens}H2D", "_".join([whole] * 3)]
    return [*found, *_MIXED_LAYOUTS, *(f"Paged_KV_{layout}" for layout in _PAGED), "BHSD_BHSD_BHSD"]


def _make_enumeration(name: str, members: Mapping[str, int]) -> type[IntEnum]:
    made: type[IntEnum] = IntEnum(name, dict(members))  # type: ignore[misc]
    return made


def _numbered_enumeration(name: str, words: Sequence[str], prefix: str = "NVTE_") -> type[IntEnum]:
    return _make_enumeration(name, {f"{prefix}{word}": number for number, word in enumerate(words)})


DType = _make_enumeration("DType", _DTYPES)
QkvLayout = _numbered_enumeration("NVTE_QKV_Layout", _qkv_layout_names())
QkvFormat = _numbered_enumeration("NVTE_QKV_Format", _FORMATS)
BiasType = _numbered_enumeration("NVTE_Bias_Type", ("NO_BIAS", "PRE_SCALE_BIAS", "POST_SCALE_BIAS", "ALIBI"))
MaskType = _numbered_enumeration("NVTE_Mask_Type", _MASKS)
SoftmaxType = _numbered_enumeration("NVTE_Softmax_Type", ("VANILLA_SOFTMAX", "OFF_BY_ONE_SOFTMAX", "LEARNABLE_SOFTMAX"))
FusedAttentionBackend = _make_enumeration(
    "NVTE_Fused_Attn_Backend",
    {"NVTE_No_Backend": -1, "NVTE_F16_max512_seqlen": 0, "NVTE_F16_arbitrary_seqlen": 1, "NVTE_FP8": 2},
)
RoutingMapFormat = _numbered_enumeration("NVTERoutingMapFormat", ("BYTEMAP", "BITMAP_U8"), "")
ENUMERATIONS: dict[str, type[IntEnum]] = {
    one.__name__: one
    for one in (
        *(DType, QkvLayout, QkvFormat, BiasType, MaskType, SoftmaxType, FusedAttentionBackend, RoutingMapFormat),
        _numbered_enumeration("Float8BlockScaleTensorFormat", ("GEMM_READY", "COMPACT", "INVALID"), ""),
        _numbered_enumeration("CommOverlapType", ("RS", "AG"), ""),
        _numbered_enumeration("CommOverlapAlgo", _OVERLAPS, ""),
        _numbered_enumeration(
            "FP8FwdTensors", [f"GEMM{n}_{of}" for n in _GEMMS for of in ("INPUT", "WEIGHT", "OUTPUT")], ""
        ),
        _numbered_enumeration("FP8BwdTensors", [f"GRAD_{of}{n}" for n in _GEMMS for of in ("OUTPUT", "INPUT")], ""),
    )
}
"""By the name in the module."""


def torch_dtype(dtype: int) -> torch.dtype:
    """The PyTorch dtype for one of Transformer Engine's."""
    return TORCH_DTYPES[int(dtype)]
