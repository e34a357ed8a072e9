"""DeepSpeedCPUAdam, CPUAdagrad and CPULion (csrc/adam/cpu_adam_impl.cpp, csrc/adagrad, csrc/lion)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual.kernels.checks import (
    check,
    check_in_device_memory,
    check_in_host_memory,
    scalar_type,
    with_signature,
)

Written = Callable[[torch.Tensor], object]

_SUPPORTED_DTYPES = {
    (torch.float16, torch.float32), (torch.float16, torch.float16),
    (torch.bfloat16, torch.float32), (torch.bfloat16, torch.bfloat16),
    (torch.float32, torch.float32),
}  # fmt: skip
"""Supported (parameter, state) dtypes; those in ``s_optimizer`` of all three kernels."""


class _CpuOptimizer:
    """A kernel module; argument names and their order follow ``csrc/*/cpu_*.cpp``."""

    kernel = ""
    options = ""
    """Arguments for creating an optimizer, after its id."""
    numbers = ""
    """Arguments of a step, between the optimizer's id and the tensors."""
    states: tuple[str, ...] = ()

    def __init__(self, mark_written: Written) -> None:
        self._written = mark_written
        self._created: set[int] = set()
        name, step = self.kernel.lower(), f"optimizer_id {self.numbers} params grads {' '.join(self.states)}"
        functions: list[tuple[str, str, Callable[..., Any]]] = [
            (f"create_{name}", f"optimizer_id {self.options} should_log=False", self._create_optimizer),
            (f"destroy_{name}", "optimizer_id", self._destroy_optimizer),
            (f"{name}_update", step, self._update_parameters),
            (f"{name}_update_copy", f"{step} device_params", self._step_and_copy),
            *([("adam_rollback", step, self._rollback)] if name == "adam" else []),
        ]
        for function, words, run in functions:
            setattr(self, function, with_signature(words, run))

    def _create_optimizer(self, optimizer_id: int, **options: object) -> int:
        self._created.add(optimizer_id)
        return 0

    def _destroy_optimizer(self, optimizer_id: int) -> int:
        self._created.discard(optimizer_id)
        return 0

    def _update_parameters(self, optimizer_id: int, params: torch.Tensor, grads: torch.Tensor, **others: Any) -> int:
        states = {name: others[name] for name in self.states}
        check(optimizer_id in self._created, f"{self.kernel} optimizer #{optimizer_id} was not created")
        check_in_host_memory(f"DeepSpeedCPU{self.kernel}", params=params, grads=grads, **states)
        first = states[self.states[0]]
        check(
            (params.dtype, first.dtype) in _SUPPORTED_DTYPES,
            f"{self.kernel} optimizer with param type {scalar_type(params)} and state type {scalar_type(first)} "
            "is not supported on current hardware",
        )
        for tensor in (params, grads, *states.values()):
            tensor.contiguous()  # a copy if it isn't contiguous: then the kernel's update is lost
        for tensor in (params, *states.values()):
            if tensor.is_contiguous():
                self._written(tensor)
        return 0

    def _step_and_copy(self, optimizer_id: int, device_params: torch.Tensor, **others: Any) -> int:
        """A step that also copies the parameters to the device; up to DeepSpeed 0.14.2."""
        check_in_device_memory(f"DeepSpeedCPU{self.kernel}", device_params=device_params)
        result = self._update_parameters(optimizer_id, **others)
        self._written(device_params)
        return result

    def _rollback(self, optimizer_id: int, **others: Any) -> int:
        """``ds_adam_rollback``, which only Adam has: float32 only, else returns -1."""
        if any(others[name].dtype != torch.float32 for name in ("params", "grads", *self.states)):
            return -1
        return self._update_parameters(optimizer_id, **others)


class CpuAdam(_CpuOptimizer):
    """Replaces the module ``cpu_adam``."""

    kernel = "Adam"
    options = "alpha=0.001 betta1=0.9 betta2=0.999 eps=1e-8 weight_decay=0 adamw_mode=True"
    numbers = "step lr beta1 beta2 epsilon weight_decay bias_correction"
    states = ("exp_avg", "exp_avg_sq")


class CpuAdagrad(_CpuOptimizer):
    """Replaces the module ``cpu_adagrad``."""

    kernel = "Adagrad"
    options = "alpha=0.01 eps=1e-8 weight_decay=0"
    numbers = "step lr epsilon weight_decay"
    states = ("exp_avg_sq",)


class CpuLion(_CpuOptimizer):
    """Replaces the module ``cpu_lion``."""

    kernel = "Lion"
    options = "alpha=0.001 betta1=0.9 betta2=0.999 weight_decay=0"
    numbers = "step lr beta1 beta2 weight_decay"
    states = ("exp_avg",)
