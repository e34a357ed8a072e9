"""FusedAdam, FusedLion and FusedLamb (csrc/adam/multi_tensor_adam.cu, csrc/lion, csrc/lamb)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gonogo.virtual.kernels.checks import check, multi_tensor, on_accelerator, scalar_type

Written = Callable[[torch.Tensor], object]
Lists = list[list[torch.Tensor]]


class FusedAdam:
    """The module ``fused_adam``."""

    def __init__(self, written: Written) -> None:
        self._written = written

    def multi_tensor_adam(
        self,
        chunk_size: int,
        noop_flag: torch.Tensor,
        tensor_lists: Lists,
        lr: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        step: int,
        mode: int,
        bias_correction: int,
        weight_decay: float,
    ) -> None:
        """``tensor_lists`` are gradients, parameters, and the two states."""
        multi_tensor(tensor_lists, 4, "adam")
        _expect_int(noop_flag)
        for tensors in tensor_lists[1:]:
            for tensor in tensors:
                self._written(tensor)


class FusedLion:
    """The module ``fused_lion``."""

    def __init__(self, written: Written) -> None:
        self._written = written

    def multi_tensor_lion(
        self,
        chunk_size: int,
        noop_flag: torch.Tensor,
        tensor_lists: Lists,
        lr: float,
        beta1: float,
        beta2: float,
        step: int,
        weight_decay: float,
    ) -> None:
        """``tensor_lists`` are gradients, parameters, and the state."""
        multi_tensor(tensor_lists, 3, "lion")
        _expect_int(noop_flag)
        for tensors in tensor_lists[1:]:
            for tensor in tensors:
                self._written(tensor)


class FusedLamb:
    """The module ``fused_lamb``."""

    def __init__(self, written: Written) -> None:
        self._written = written

    def lamb(
        self,
        p: torch.Tensor,
        p_copy: torch.Tensor,
        m: torch.Tensor,
        v: torch.Tensor,
        g: torch.Tensor,
        lr: float,
        beta1: float,
        beta2: float,
        max_coeff: float,
        min_coeff: float,
        eps: float,
        grad_scale: float,
        step: int,
        mode: int,
        bias_correction: int,
        decay: float,
    ) -> torch.Tensor:
        """Returns the coefficient of the layer, one element on the device."""
        inputs = {"p": p, "m": m, "v": v, "g": g, **({"p_copy": p_copy} if p_copy.numel() else {})}
        for name, tensor in inputs.items():
            check(on_accelerator(tensor), f"{name} must be a CUDA tensor")
            check(tensor.is_contiguous(), f"{name} must be contiguous")
        for name in ("m", "v", "g"):
            check(inputs[name].numel() == p.numel(), f"number of elements in {name} and p tensors should be equal")
        check(
            p_copy.numel() in (p.numel(), 0),
            "number of elements in p_copy and p tensors should be equal, or p_copy should be empty",
        )
        supported = (torch.float64, torch.float32, torch.float16)
        check(g.dtype in supported, f"\"lamb_cuda_kernel\" not implemented for '{scalar_type(g)}'")
        dtype = torch.float32 if p.dtype == torch.float16 else p.dtype
        for _ in ("weights", "update"):
            torch.empty(512, dtype=dtype, device=p.device)
        for tensor in (p, m, v, *([p_copy] if p_copy.numel() else [])):
            self._written(tensor)
        return torch.empty(1, dtype=dtype, device=p.device)


def _expect_int(noop_flag: torch.Tensor) -> None:
    check(noop_flag.dtype == torch.int32, f"expected scalar type Int but found {scalar_type(noop_flag)}")
