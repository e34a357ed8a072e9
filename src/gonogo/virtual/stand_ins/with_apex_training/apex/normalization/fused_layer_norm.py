"""The module in which Apex defines its layer norms."""

from __future__ import annotations

from apex import _rest
from apex.normalization import FusedLayerNorm, FusedRMSNorm, MixedFusedLayerNorm, MixedFusedRMSNorm

__all__ = ["FusedLayerNorm", "FusedRMSNorm", "MixedFusedLayerNorm", "MixedFusedRMSNorm"]
__getattr__ = _rest.module_getattr(__name__)
