"""Cross entropy, differentiable: the kernel keeps the logits, and may write their gradient over them."""

from __future__ import annotations

from typing import Any

import torch

from flash_attn._rest import module_getattr

__getattr__ = module_getattr(__name__)


class CrossEntropyLoss(torch.autograd.Function):
    """Cross entropy; saves the logits, their logsumexp and the labels for the backward."""

    @staticmethod
    def forward(ctx: Any, logits: Any, labels: Any, precomputed_lse: Any, inplace_backward: bool) -> Any:
        """(losses, z losses) in fp32, one a row."""
        rows = logits.shape[0]
        assert labels.shape == (rows,)
        losses = torch.empty(rows, dtype=torch.float, device=logits.device)
        lse = precomputed_lse if precomputed_lse is not None else torch.empty_like(losses)
        z_losses = torch.empty_like(losses)
        ctx.save_for_backward(logits, lse, labels)
        ctx.mark_non_differentiable(z_losses)
        ctx.inplace = inplace_backward
        return losses, z_losses

    @staticmethod
    def backward(ctx: Any, grad_losses: Any, grad_z_losses: Any) -> Any:
        """The logits' gradient."""
        logits, _, _ = ctx.saved_tensors
        return logits if ctx.inplace else torch.empty_like(logits), None, None, None


def cross_entropy_loss(
    logits: Any, labels: Any, precomputed_lse: Any = None, label_smoothing: float = 0.0, logit_scale: float = 1.0,
    lse_square_scale: float = 0.0, ignore_index: int = -100, inplace_backward: bool = False, process_group: Any = None,
) -> Any:  # fmt: skip
    """(losses, z losses) of (rows, classes); with a group, the classes lie over its ranks."""
    if process_group is not None and torch.distributed.get_world_size(process_group) > 1:
        sums = torch.empty(logits.shape[0], dtype=torch.float, device=logits.device)
        torch.distributed.all_reduce(sums, group=process_group)
    return CrossEntropyLoss.apply(logits, labels, precomputed_lse, inplace_backward)  # type: ignore[no-untyped-call]
