"""Names in safetensors files: of dtypes, and of what gonogo writes into their headers."""

from __future__ import annotations

import torch

UNREAD_KEY = "gonogo.unread"
"""Key of a header's metadata: a JSON list of the tensors without values, or ``"all"``."""

ORIGINS = "gonogo.origins"
"""Key of a header's metadata: the origins of each tensor (see ``origins.py``)."""
_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "U64": "uint64", "U32": "uint32", "U16": "uint16",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu", "F4": "float4_e2m1fn_x2",
}  # fmt: skip
DTYPE_NAMES = {name: code for code, name in _DTYPES.items()}
"""Maps torch's name of a dtype to safetensors' code."""


def torch_dtype(code: str) -> torch.dtype | None:
    """torch's dtype of a safetensors code; None if this torch has none."""
    dtype = getattr(torch, _DTYPES.get(code, ""), None)
    return dtype if isinstance(dtype, torch.dtype) else None


def torch_dtype_or_raise(code: str) -> torch.dtype:
    """torch's dtype of a safetensors code. Raises ValueError if this torch has none."""
    if (dtype := torch_dtype(code)) is None:
        raise ValueError(f"safetensors dtype {code} is not known to this torch")
    return dtype
