"""Kernels: functions that are launched over a grid, and that no caller runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from triton import _rest

T = TypeVar("T")
__getattr__ = _rest.module_getattr(__name__)


class KernelInterface(Generic[T]):
    """``kernel[grid](…)`` is ``kernel.run(…, grid=grid)``."""

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch the kernel; gonogo replaces this method of kernels."""
        raise NotImplementedError

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compile the kernel without launching it."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)


class JITFunction(KernelInterface[T]):
    """A function that is compiled as a Triton kernel."""

    def __init__(self, fn: Callable[..., Any], **options: Any) -> None:
        self.fn = fn
        self.arg_names = list(inspect.signature(fn).parameters)
        self.do_not_specialize = options.get("do_not_specialize") or ()
        functools.update_wrapper(self, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse, as no host code can run it."""
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")

    def __repr__(self) -> str:
        return f"JITFunction({self.fn.__module__}:{self.fn.__qualname__})"


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorate a function as a Triton kernel."""
    if fn is None:
        return lambda given: JITFunction(given, **options)
    return JITFunction(fn, **options)


def constexpr_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that kernels call with constants at compile time."""
    return fn
