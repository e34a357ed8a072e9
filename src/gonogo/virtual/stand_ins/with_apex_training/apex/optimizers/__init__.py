"""The fused optimizers with PyTorch's, which keep states of the same sizes; one parameter at a time, as no kernel of
these makes temporary lists of all parameters."""

from __future__ import annotations

from typing import Any

import torch

from apex import _rest

__all__ = ["FusedAdam", "FusedLAMB", "FusedSGD"]
__getattr__ = _rest.module_getattr(__name__)


class FusedAdam(torch.optim.AdamW):
    """Two states a parameter."""

    def __init__(
        self, params: Any, lr: float = 1e-3, bias_correction: bool = True, betas: Any = (0.9, 0.999), eps: float = 1e-8,
        adam_w_mode: bool = True, weight_decay: float = 0.0, amsgrad: bool = False, set_grad_none: bool = True,
        **others: Any,
    ) -> None:  # fmt: skip
        if amsgrad:
            raise RuntimeError("FusedAdam does not support the AMSGrad variant.")
        super().__init__(params, lr, betas, eps, weight_decay, foreach=False)


class FusedLAMB(torch.optim.AdamW):
    """Two states a parameter, as Adam."""

    def __init__(
        self, params: Any, lr: float = 1e-3, bias_correction: bool = True, betas: Any = (0.9, 0.999), eps: float = 1e-6,
        weight_decay: float = 0.01, amsgrad: bool = False, **others: Any,
    ) -> None:  # fmt: skip
        if amsgrad:
            raise RuntimeError("FusedLAMB does not support the AMSGrad variant.")
        super().__init__(params, lr, betas, eps, weight_decay, foreach=False)


class FusedSGD(torch.optim.SGD):
    """One state a parameter with momentum."""

    def __init__(
        self, params: Any, lr: float, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False, **others: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, foreach=False)
