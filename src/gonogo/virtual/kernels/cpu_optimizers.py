"""DeepSpeedCPUAdam, CPUAdagrad and CPULion (csrc/adam/cpu_adam_impl.cpp, csrc/adagrad, csrc/lion)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gonogo.virtual.kernels.checks import check, in_device_memory, in_host_memory, scalar_type

Written = Callable[[torch.Tensor], object]

_SUPPORTED = {
    (torch.float16, torch.float32), (torch.float16, torch.float16),
    (torch.bfloat16, torch.float32), (torch.bfloat16, torch.bfloat16),
    (torch.float32, torch.float32),
}  # fmt: skip
"""(parameter, state) dtypes that have an invoker; ``s_optimizer`` of all three kernels."""


class _CpuOptimizer:
    kernel = ""

    def __init__(self, written: Written) -> None:
        self._written = written
        self._created: set[int] = set()

    def _create(self, optimizer_id: int) -> int:
        self._created.add(optimizer_id)
        return 0

    def _destroy(self, optimizer_id: int) -> int:
        self._created.discard(optimizer_id)
        return 0

    def _step(self, optimizer_id: int, params: torch.Tensor, grads: torch.Tensor, **states: torch.Tensor) -> int:
        check(optimizer_id in self._created, f"{self.kernel} optimizer #{optimizer_id} was not created")
        in_host_memory(f"DeepSpeedCPU{self.kernel}", params=params, grads=grads, **states)
        first = next(iter(states.values()))
        check(
            (params.dtype, first.dtype) in _SUPPORTED,
            f"{self.kernel} optimizer with param type {scalar_type(params)} and state type {scalar_type(first)} "
            "is not supported on current hardware",
        )
        for tensor in (params, grads, *states.values()):
            tensor.contiguous()  # a copy where it is not: then the kernel updates the copy, which is lost
        for tensor in (params, *states.values()):
            if tensor.is_contiguous():
                self._written(tensor)
        return 0

    def _step_and_copy(self, optimizer_id: int, *tensors: torch.Tensor, **states: torch.Tensor) -> int:
        """Up to DeepSpeed 0.14.2 a step could also copy the parameters to the device."""
        params, grads, device_params = tensors
        in_device_memory(f"DeepSpeedCPU{self.kernel}", device_params=device_params)
        result = self._step(optimizer_id, params, grads, **states)
        self._written(device_params)
        return result


class CpuAdam(_CpuOptimizer):
    """The module ``cpu_adam``."""

    kernel = "Adam"

    def create_adam(
        self,
        optimizer_id: int,
        alpha: float = 1e-3,
        betta1: float = 0.9,
        betta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0,
        adamw_mode: bool = True,
        should_log: bool = False,
    ) -> int:
        """Keep the optimizer's number."""
        return self._create(optimizer_id)

    def destroy_adam(self, optimizer_id: int) -> int:
        """Forget it."""
        return self._destroy(optimizer_id)

    def adam_update(
        self,
        optimizer_id: int,
        step: int,
        lr: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        weight_decay: float,
        bias_correction: bool,
        params: torch.Tensor,
        grads: torch.Tensor,
        exp_avg: torch.Tensor,
        exp_avg_sq: torch.Tensor,
    ) -> int:
        """``ds_adam_step``."""
        return self._step(optimizer_id, params, grads, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq)

    def adam_update_copy(
        self,
        optimizer_id: int,
        step: int,
        lr: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        weight_decay: float,
        bias_correction: bool,
        params: torch.Tensor,
        grads: torch.Tensor,
        exp_avg: torch.Tensor,
        exp_avg_sq: torch.Tensor,
        device_params: torch.Tensor,
    ) -> int:
        """``ds_adam_step_plus_copy``."""
        states = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
        return self._step_and_copy(optimizer_id, params, grads, device_params, **states)

    def adam_rollback(
        self,
        optimizer_id: int,
        step: int,
        lr: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        weight_decay: float,
        bias_correction: bool,
        params: torch.Tensor,
        grads: torch.Tensor,
        exp_avg: torch.Tensor,
        exp_avg_sq: torch.Tensor,
    ) -> int:
        """``ds_adam_rollback``: float32 only, else -1."""
        if any(t.dtype != torch.float32 for t in (params, grads, exp_avg, exp_avg_sq)):
            return -1
        return self._step(optimizer_id, params, grads, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq)


class CpuAdagrad(_CpuOptimizer):
    """The module ``cpu_adagrad``."""

    kernel = "Adagrad"

    def create_adagrad(
        self,
        optimizer_id: int,
        alpha: float = 1e-2,
        eps: float = 1e-8,
        weight_decay: float = 0,
        should_log: bool = False,
    ) -> int:
        """Keep the optimizer's number."""
        return self._create(optimizer_id)

    def destroy_adagrad(self, optimizer_id: int) -> int:
        """Forget it."""
        return self._destroy(optimizer_id)

    def adagrad_update(
        self,
        optimizer_id: int,
        step: int,
        lr: float,
        epsilon: float,
        weight_decay: float,
        params: torch.Tensor,
        grads: torch.Tensor,
        exp_avg_sq: torch.Tensor,
    ) -> int:
        """``ds_adagrad_step``."""
        return self._step(optimizer_id, params, grads, exp_avg_sq=exp_avg_sq)

    def adagrad_update_copy(
        self,
        optimizer_id: int,
        step: int,
        lr: float,
        epsilon: float,
        weight_decay: float,
        params: torch.Tensor,
        grads: torch.Tensor,
        exp_avg_sq: torch.Tensor,
        device_params: torch.Tensor,
    ) -> int:
        """``ds_adagrad_step_plus_copy``."""
        return self._step_and_copy(optimizer_id, params, grads, device_params, exp_avg_sq=exp_avg_sq)


class CpuLion(_CpuOptimizer):
    """The module ``cpu_lion``."""

    kernel = "Lion"

    def create_lion(
        self,
        optimizer_id: int,
        alpha: float = 1e-3,
        betta1: float = 0.9,
        betta2: float = 0.999,
        weight_decay: float = 0,
        should_log: bool = False,
    ) -> int:
        """Keep the optimizer's number."""
        return self._create(optimizer_id)

    def destroy_lion(self, optimizer_id: int) -> int:
        """Forget it."""
        return self._destroy(optimizer_id)

    def lion_update(
        self,
        optimizer_id: int,
        step: int,
        lr: float,
        beta1: float,
        beta2: float,
        weight_decay: float,
        params: torch.Tensor,
        grads: torch.Tensor,
        exp_avg: torch.Tensor,
    ) -> int:
        """``ds_lion_step``."""
        return self._step(optimizer_id, params, grads, exp_avg=exp_avg)

    def lion_update_copy(
        self,
        optimizer_id: int,
        step: int,
        lr: float,
        beta1: float,
        beta2: float,
        weight_decay: float,
        params: torch.Tensor,
        grads: torch.Tensor,
        exp_avg: torch.Tensor,
        device_params: torch.Tensor,
    ) -> int:
        """``ds_lion_step_plus_copy``."""
        return self._step_and_copy(optimizer_id, params, grads, device_params, exp_avg=exp_avg)
