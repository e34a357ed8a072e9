"""What launches kernels, and what chooses their settings."""

from __future__ import annotations

from triton import _rest
from triton.runtime.autotuner import Autotuner, Config, Heuristics, autotune, heuristics
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction, KernelInterface, jit

__all__ = [
    "Autotuner", "Config", "Heuristics", "JITFunction", "KernelInterface", "autotune", "driver", "heuristics", "jit",
]  # fmt: skip
__getattr__ = _rest.module_getattr(__name__)
