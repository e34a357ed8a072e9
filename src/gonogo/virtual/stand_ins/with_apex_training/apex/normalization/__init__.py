"""The fused layer norms with PyTorch's, which keep the same for the backward."""

from __future__ import annotations

from typing import Any

import torch

from apex import _rest

__all__ = ["FusedLayerNorm", "FusedRMSNorm", "MixedFusedLayerNorm", "MixedFusedRMSNorm"]
__getattr__ = _rest.module_getattr(__name__)


class FusedLayerNorm(torch.nn.LayerNorm):
    """PyTorch's, by Apex's arguments."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, **others: Any
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)


class FusedRMSNorm(torch.nn.RMSNorm):
    """PyTorch's, by Apex's arguments."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, **others: Any
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)


MixedFusedLayerNorm = FusedLayerNorm
MixedFusedRMSNorm = FusedRMSNorm
