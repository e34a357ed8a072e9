"""Triton's interface for programs that define and launch kernels; gonogo leaves the launches out.

Found where Triton isn't installed and the program can't do without: torch's builds for GPUs bring it, CPU builds don't.
"""

from __future__ import annotations

from triton import _rest

_rest.install()
__version__ = _rest.VERSION

from triton import language, runtime  # noqa: E402  found only now
from triton.runtime import Config, JITFunction, KernelInterface, autotune, heuristics, jit  # noqa: E402
from triton.runtime._allocation import set_allocator  # noqa: E402

__all__ = [
    "Config", "JITFunction", "KernelInterface", "autotune", "cdiv", "heuristics", "jit", "language", "next_power_of_2",
    "runtime", "set_allocator",
]  # fmt: skip
__getattr__ = _rest.module_getattr(__name__)


def cdiv(x: int, y: int) -> int:
    """``x`` divided by ``y``, rounded up."""
    return (x + y - 1) // y


def next_power_of_2(n: int) -> int:
    """The smallest power of 2 that is at least ``n``."""
    return 1 << max(n - 1, 0).bit_length() if n > 0 else 0
