"""The loss as a module."""

from __future__ import annotations

from typing import Any

from torch import nn

from flash_attn._rest import module_getattr
from flash_attn.ops.triton.cross_entropy import cross_entropy_loss

__getattr__ = module_getattr(__name__)


class CrossEntropyLoss(nn.Module):
    """Like ``nn.CrossEntropyLoss``, computed by flash-attn's kernel."""

    def __init__(
        self, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0, logit_scale: float = 1.0,
        lse_square_scale: float = 0.0, inplace_backward: bool = False, process_group: Any = None,
        return_z_loss: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if reduction not in ("mean", "none", "sum"):
            raise NotImplementedError("Only support reduction = 'mean' or 'none' or 'sum'")
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing
        self.logit_scale, self.lse_square_scale, self.inplace_backward = logit_scale, lse_square_scale, inplace_backward
        self.process_group, self.return_z_loss = process_group, return_z_loss

    def forward(self, input: Any, target: Any, precomputed_lse: Any = None) -> Any:
        """The loss of (rows, classes) logits and (rows,) labels; with ``return_z_loss`` the z loss too."""
        assert input.is_cuda
        assert target.is_cuda
        losses, z_losses = cross_entropy_loss(
            input, target, precomputed_lse, inplace_backward=self.inplace_backward, process_group=self.process_group
        )
        if self.reduction != "none":
            losses, z_losses = losses.sum(), z_losses.sum()
            if self.reduction == "mean":
                count = (target != self.ignore_index).sum()
                losses, z_losses = losses / count, z_losses / count
        return (losses, z_losses) if self.return_z_loss else losses
