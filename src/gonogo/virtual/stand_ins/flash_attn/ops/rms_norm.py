"""The norm by its older, compiled kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from flash_attn._rest import module_getattr
from flash_attn.ops.triton.layer_norm import rms_norm_fn

__getattr__ = module_getattr(__name__)


def rms_norm(x: Any, weight: Any, epsilon: float) -> Any:
    """RMSNorm over the last dimension."""
    return rms_norm_fn(x, weight, None, eps=epsilon)


class RMSNorm(nn.Module):
    """RMSNorm over the last dimension, as a module."""

    def __init__(self, hidden_size: int, eps: float = 1e-5, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias", None)

    def reset_parameters(self) -> None:
        """Set the weight to ones."""
        nn.init.ones_(self.weight)

    def forward(self, x: Any) -> Any:
        """See :func:`rms_norm`."""
        return rms_norm(x, self.weight, self.eps)
