"""Recurrent networks with a torch that has cuDNN: asked how weights are laid out, it would enter the driver.

``RNN.flatten_parameters`` copies a network's weights into one buffer, whose parts they then are. Here the buffer is
made and given up, and the weights stay where they are: the same bytes, then and later. Only cuDNN's padding between
them is left out.
"""

from __future__ import annotations

from typing import Any

import torch

from gonogo.virtual.mode import HANDLERS, VirtualMode
from gonogo.virtual.tensor import Spec


def _flatten_weight(mode: VirtualMode, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    weights = args[0]
    count = sum(weight.numel() for weight in weights)
    spec = Spec.of(torch.Size((count,)), (1,), weights[0].dtype, weights[0].device)
    return mode._new(spec, count * weights[0].element_size())


HANDLERS[torch.ops.aten._cudnn_rnn_flatten_weight.default] = _flatten_weight
