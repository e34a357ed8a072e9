"""Layer-wise adaptive rates around another optimizer."""

from __future__ import annotations

from typing import Any

import torch


class LARC:
    """Scales each gradient by the norms of its parameter and of itself before the optimizer's step."""

    def __init__(self, optimizer: Any, trust_coefficient: float = 0.02, clip: bool = True, eps: float = 1e-8) -> None:
        self.optim = optimizer
        self.trust_coefficient = trust_coefficient
        self.clip = clip
        self.eps = eps

    def __getattr__(self, name: str) -> Any:
        if name == "optim":
            raise AttributeError(name)
        return getattr(self.optim, name)

    @property
    def param_groups(self) -> Any:
        """The optimizer's."""
        return self.optim.param_groups

    @param_groups.setter
    def param_groups(self, value: Any) -> None:
        self.optim.param_groups = value

    @torch.no_grad()
    def step(self) -> None:
        """One step; the weight decay is part of the scaled gradients."""
        decays = []
        for group in self.optim.param_groups:
            decay = group.get("weight_decay", 0)
            decays.append(decay)
            group["weight_decay"] = 0
            for one in group["params"]:
                if one.grad is not None:
                    size, slope = torch.norm(one.data), torch.norm(one.grad.data)
                    rate = self.trust_coefficient * size / (slope + size * decay + self.eps)
                    if self.clip:
                        rate = torch.clamp(rate / group["lr"], max=1)
                    one.grad.data.add_(one.data, alpha=decay)
                    one.grad.data.mul_(rate)
        self.optim.step()
        for group, decay in zip(self.optim.param_groups, decays, strict=True):
            group["weight_decay"] = decay
