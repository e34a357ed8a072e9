"""What kernels are compiled for: asked by name whether it is there."""

from __future__ import annotations

from triton import _rest

__all__ = ["backends"]
__getattr__ = _rest.module_getattr(__name__)
backends: dict[str, object] = {"nvidia": object(), "amd": object()}
