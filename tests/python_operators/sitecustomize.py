"""What takes minutes in programs that are run for real on the CPU, in another way: DeepSpeed's compiled operators are
Python, and 16-bit products are computed in float32.

Python imports this file when it starts with this folder on its path (see ``operators_in_python.py``). The optimizers
are torch's arithmetic in place of csrc/adam; collectives in shared memory are left out, as on a machine without g++.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from types import SimpleNamespace
from typing import Any

BUILDERS = "deepspeed.ops.op_builder.builder"
BLOCK = 1 << 16
"""Elements updated at a time: the compiled operators take no memory of their own, and this takes next to none."""
WITH_DECAY_APART = 1  # the mode that is AdamW; 0 adds the decay to the gradient


def adam(
    step: int, lr: float, betas: tuple[float, float], eps: float, decay: float, apart: bool, corrected: bool,
    *tensors: Any,
) -> None:  # fmt: skip
    """One parameter's update, in place, from the parameter, its gradient and both averages."""
    for block in zip(*(tensor.view(-1).split(BLOCK) for tensor in tensors), strict=True):
        adam_of_block(step, lr, betas, eps, decay, apart, corrected, *block)


def adam_of_block(
    step: int, lr: float, betas: tuple[float, float], eps: float, decay: float, apart: bool, corrected: bool,
    param: Any, grad: Any, average: Any, square: Any,
) -> None:  # fmt: skip
    """As :func:`adam`, in float32 as the compiled one's."""
    weights, gradient = param.float(), grad.float()
    if not apart:
        gradient = gradient.add(weights, alpha=decay)
    average.mul_(betas[0]).add_(gradient.to(average.dtype), alpha=1 - betas[0])
    square.mul_(betas[1]).add_((gradient * gradient).to(square.dtype), alpha=1 - betas[1])
    first, second = (1 - betas[0] ** step, 1 - betas[1] ** step) if corrected else (1.0, 1.0)
    if apart:
        weights = weights * (1 - lr * decay)
    param.copy_(weights - lr / first * average.float() / ((square.float() / second).sqrt() + eps))


class CpuAdam:
    """The module ``cpu_adam``."""

    def __init__(self) -> None:
        self.apart: dict[int, bool] = {}

    def create_adam(self, number: int, lr: float, b1: float, b2: float, eps: float, decay: float, apart: bool,
                    log: bool) -> None:  # fmt: skip
        self.apart[number] = apart

    def destroy_adam(self, number: int) -> None:
        self.apart.pop(number, None)

    def adam_update(self, number: int, step: int, lr: float, b1: float, b2: float, eps: float, decay: float,
                    corrected: bool, *tensors: Any) -> None:  # fmt: skip
        adam(step, lr, (b1, b2), eps, decay, self.apart[number], corrected, *tensors)


def multi_tensor_adam(
    chunk: int, noop: Any, tensors: Any, lr: float, b1: float, b2: float, eps: float, step: int, mode: int,
    corrected: int, decay: float,
) -> None:  # fmt: skip
    """The module ``fused_adam``: lists of gradients, parameters and both averages."""
    for grad, param, average, square in zip(*tensors, strict=True):
        adam(step, lr, (b1, b2), eps, decay, mode == WITH_DECAY_APART, bool(corrected), param, grad, average, square)


MODULES = {"cpu_adam": CpuAdam(), "fused_adam": SimpleNamespace(multi_tensor_adam=multi_tensor_adam)}


def put_in(builders: Any) -> None:
    """Have every builder hand out what is here, and nothing be compiled."""

    def load(self: Any, verbose: bool = False) -> Any:
        return MODULES[self.name]

    builders.OpBuilder.load = load
    builders.OpBuilder.jit_load = load
    builders.OpBuilder.is_compatible = lambda self, verbose=False: self.name in MODULES


def multiply_in_float32() -> None:
    """Products of 16-bit matrices in float32, rounded: many processors have no fast 16-bit ones."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    products = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default}

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func not in products or args[0].dtype not in (torch.bfloat16, torch.float16):
                return func(*args, **(kwargs or {}))
            return func(*(tensor.float() for tensor in args), **(kwargs or {})).to(args[0].dtype)

    Products().__enter__()


class Finder(importlib.abc.MetaPathFinder):
    """Waits for DeepSpeed's builders to be imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != BUILDERS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            put_in(module)
            if "KEEP_16_BIT_PRODUCTS" not in os.environ:
                multiply_in_float32()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Finder())
