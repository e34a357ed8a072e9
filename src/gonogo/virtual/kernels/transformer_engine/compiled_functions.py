"""What all parts of the compiled module's stand-in share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gonogo.finding import Text
from gonogo.virtual.kernels.checks import check, on_accelerator
from gonogo.virtual.unsupported import UnsupportedOperator

NOT_COVERED = Text(
    "gonogo's stand-in for Transformer Engine's compiled library covers training in bf16, fp16 and fp32 only",
    "gonogo 对 Transformer Engine 编译库的替身只支持 bf16、fp16 和 fp32 训练",
)
ASSUMED = Text(
    "Transformer Engine's compiled library and cuDNN {cudnn} load on the machine",
    "Transformer Engine 的编译库和 cuDNN {cudnn} 能在机器上加载",
).format(cudnn="9.20")
ATTENTION = Text("cuDNN's attention runs on the machine", "cuDNN 的注意力能在机器上运行")
CUDNN = 92000
"""The cuDNN that is taken to be there: what it can do decides which attention is used."""


class CompiledFunctions:
    """A part of the compiled module: its public methods are functions of it."""

    def __init__(
        self,
        written: Callable[[torch.Tensor], object],
        assume: Callable[[Text], object],
        compute_capability: tuple[int, int],
    ) -> None:
        self._written = written
        self._assume = assume
        self._capability = compute_capability

    def _new(self, shape: Sequence[int], dtype: torch.dtype, like: torch.Tensor) -> Any:
        """Memory with unknown content, on the device of a tensor."""
        made = torch.empty(tuple(shape), dtype=dtype, device=like.device)
        self._written(made)
        return made

    @staticmethod
    def _known(numbers: torch.Tensor) -> list[int] | None:
        """Their values, where they are known."""
        mode = getattr(type(numbers), "virtual_mode", None)
        known = mode.known_values(numbers) if mode is not None else numbers
        return None if known is None else [int(number) for number in known.tolist()]

    def _takes(self, *operands: Any, quantizer: Any = None) -> None:
        """What every kernel of bf16 training asks of what it is given: plain tensors on the accelerator."""
        self._assume(ASSUMED)
        for operand in operands:
            if isinstance(operand, torch.Tensor) and type(operand).__module__.startswith("transformer_engine."):
                raise UnsupportedOperator(type(operand).__name__, NOT_COVERED)
            if not isinstance(operand, torch.Tensor):
                raise UnsupportedOperator(type(operand).__name__, NOT_COVERED)
            check(on_accelerator(operand), f"Expected a CUDA tensor, but got a tensor on {operand.device}")
        if quantizer is not None:
            raise UnsupportedOperator(type(quantizer).__name__, NOT_COVERED)


def two_dimensional(shape: Sequence[int]) -> tuple[int, int]:
    """``get_2d_dims``: all dimensions but the last as one, and the last."""
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return rows, (shape[-1] if len(shape) else 1)
