"""Recurrent networks with a torch that has cuDNN: asked how weights are laid out, it would enter the driver.

``RNN.flatten_parameters`` copies a network's weights into one buffer, whose parts they then are. Here the buffer is
made and given up, and the weights stay where they are: the same bytes, then and later. Only cuDNN's padding between
them is left out.

Packed sequences are read by C++ that takes their lengths out of memory (aten/src/ATen/native/PackedSequence.cpp),
which a virtual tensor has not: where the lengths lie on the CPU, as they must, it works for real and can't be
rehearsed.
"""

from __future__ import annotations

from typing import Any

import torch

from gonogo.finding import Text
from gonogo.virtual.mode import HANDLERS, VirtualMode
from gonogo.virtual.tensor import CPU, Spec, VirtualTensor
from gonogo.virtual.unsupported import UnsupportedOperator


def _flatten_weight(mode: VirtualMode, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    weights = args[0]
    count = sum(weight.numel() for weight in weights)
    spec = Spec.of(torch.Size((count,)), (1,), weights[0].dtype, weights[0].device)
    return mode._new(spec, count * weights[0].element_size())


def _pack_padded_sequence(mode: VirtualMode, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    data, lengths = args[:2]
    if not isinstance(data, VirtualTensor) and not isinstance(lengths, VirtualTensor):
        return func(*args, **kwargs)
    if lengths.device != CPU:
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, but got "
            f"{lengths.dim()}D {lengths.device} {lengths.type().rpartition('.')[2].removesuffix('Tensor')} tensor"
        )
    raise UnsupportedOperator(
        str(func), Text("it reads the lengths of packed sequences out of memory", "它从内存中读取打包序列的长度")
    )


HANDLERS[torch.ops.aten._pack_padded_sequence.default] = _pack_padded_sequence
HANDLERS[torch.ops.aten._cudnn_rnn_flatten_weight.default] = _flatten_weight
