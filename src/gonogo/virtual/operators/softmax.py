"""The backward of softmax, whose CUDA kernel is given a product that PyTorch computes first (SoftMax.cu).

That product has the gradient's size, and is there together with the result. On a CPU there is none.
"""

from __future__ import annotations

from typing import Any

import torch

from gonogo.virtual.mode import HANDLERS, VirtualMode

aten = torch.ops.aten


def _softmax_backward(mode: VirtualMode, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    result = mode.run(mode.operator(func), args, kwargs)
    gradient, output = args[0], args[1]
    if result.device.type == "cuda" and result.numel():
        mode.run(mode.operator(aten.mul.Tensor), (gradient, output), {})  # freed at once
    return result


HANDLERS[aten._softmax_backward_data.default] = _softmax_backward
