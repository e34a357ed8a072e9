"""Allocators of kernels' scratch memory: kept and never called, as kernels are not launched."""

from __future__ import annotations

from typing import Any

from triton import _rest

__getattr__ = _rest.module_getattr(__name__)


def set_allocator(allocator: Any) -> None:
    """Accept the function that allocates global scratch memory."""


def set_profile_allocator(allocator: Any) -> None:
    """Accept the function that allocates a profiler's scratch memory."""
