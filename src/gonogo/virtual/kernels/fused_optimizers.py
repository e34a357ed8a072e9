"""FusedAdam, FusedLion and FusedLamb (csrc/adam/multi_tensor_adam.cu, csrc/lion, csrc/lamb)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gonogo.virtual.kernels.checks import check, check_multi_tensor, on_accelerator, scalar_type, with_signature

Written = Callable[[torch.Tensor], object]
TensorLists = list[list[torch.Tensor]]


class _MultiTensor:
    """A module with one kernel over lists of tensors: gradients, parameters and states."""

    kernel = ""
    lists = 0
    numbers = ""
    """The kernel's arguments after the lists; see ``csrc/*/multi_tensor_*.cu``."""

    def __init__(self, written: Written) -> None:
        self._written = written
        words = f"chunk_size noop_flag tensor_lists {self.numbers}"
        setattr(self, f"multi_tensor_{self.kernel}", with_signature(words, self._run_multi_tensor))

    def _run_multi_tensor(self, noop_flag: torch.Tensor, tensor_lists: TensorLists, **numbers: object) -> None:
        check_multi_tensor(tensor_lists, self.lists, self.kernel)
        check(noop_flag.dtype == torch.int32, f"expected scalar type Int but found {scalar_type(noop_flag)}")
        for tensors in tensor_lists[1:]:
            for tensor in tensors:
                self._written(tensor)


class FusedAdam(_MultiTensor):
    """Replaces the module ``fused_adam``."""

    kernel, lists = "adam", 4
    numbers = "lr beta1 beta2 epsilon step mode bias_correction weight_decay"


class FusedLion(_MultiTensor):
    """Replaces the module ``fused_lion``."""

    kernel, lists = "lion", 3
    numbers = "lr beta1 beta2 step weight_decay"


class FusedLamb:
    """Replaces the module ``fused_lamb``."""

    def __init__(self, written: Written) -> None:
        self._written = written
        self.lamb = with_signature(
            "p p_copy m v g lr beta1 beta2 max_coeff min_coeff eps grad_scale step mode bias_correction decay",
            self._run_lamb,
        )

    def _run_lamb(
        self, p: torch.Tensor, p_copy: torch.Tensor, m: torch.Tensor, v: torch.Tensor, g: torch.Tensor, **numbers: float
    ) -> torch.Tensor:
        """Run one step; returns the layer's coefficient, one element on the device."""
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
