"""Stand-ins for Apex's compiled softmax kernels, as Megatron-Core's own attention asks for them.

Three modules, each with ``forward`` and ``backward``; read in csrc/megatron/ of NVIDIA/apex: the result has the input's
shape and dtype, and the backward writes over the gradient that it is given, and returns it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from gonogo.finding import Text
from gonogo.virtual.patching.patches import Patches

_NAMES = ("scaled_upper_triang_masked_softmax_cuda", "scaled_masked_softmax_cuda", "scaled_softmax_cuda")
_ASSUMED = Text("Apex's softmax kernels are installed on the machine", "机器上装有 Apex 的 softmax 内核")
_THREADS, _WARP, _SHORT = 128, 32, 128


def install(patches: Patches, written: Callable[[torch.Tensor], object], assume: Callable[[Text], object]) -> None:
    """Have programs import them; the first call is an assumption."""
    for name in _NAMES:
        patches.item(sys.modules, name, _module(name, written, assume))


def _module(name: str, written: Callable[[torch.Tensor], object], assume: Callable[[Text], object]) -> ModuleType:
    def forward(inputs: torch.Tensor, *mask_and_scale: Any) -> torch.Tensor:
        assume(_ASSUMED)
        if inputs.dtype not in (torch.float16, torch.bfloat16):
            raise RuntimeError("Only fp16 and bf16 are supported")
        return torch.empty_like(inputs, memory_format=torch.contiguous_format)

    def backward(output_grads: torch.Tensor, softmax_results: torch.Tensor, scale: Any) -> torch.Tensor:
        written(output_grads)
        return output_grads

    module = ModuleType(name)
    module.forward, module.backward = forward, backward  # type: ignore[attr-defined]
    if name == "scaled_masked_softmax_cuda":
        module.get_batch_per_block = _batches_of_block  # type: ignore[attr-defined]
    return module


def _batches_of_block(queries: int, keys: int, batches: int, heads: int) -> int:
    power = 1 << max(keys - 1, 0).bit_length()
    return _THREADS // min(power, _WARP) * (2 if power <= _SHORT else 1)
