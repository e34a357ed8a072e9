"""CUDA kernels that a program compiles as it runs (``torch.cuda._compile_kernel``): launched for nothing.

A raw kernel works on the tensors that it is given and allocates none: leaving it out changes no shape and no memory.
Its parameters in C say what it may write: a pointer that is not ``const``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual.kernels.checks import on_accelerator
from gonogo.virtual.patching.patches import Patches

_NAME = "_compile_kernel"
"""torch.cuda's, since torch 2.8."""
_LAUNCHES = translated("CUDA kernel {name} compiles and runs on the machine")


def install(patches: Patches, written: Callable[[torch.Tensor], object], assume: Callable[[Text], object]) -> None:
    """Stand in for kernels that NVRTC would compile, where this torch can."""
    if not hasattr(torch.cuda, _NAME):
        return

    def compile_kernel(kernel_source: str, kernel_name: str, *_args: Any, **_kwargs: Any) -> _Kernel:
        assume(_LAUNCHES.format(name=kernel_name))
        return _Kernel(written_positions(kernel_source, kernel_name), written)

    patches.set(torch.cuda, _NAME, compile_kernel)


class _Kernel:
    """What ``_compile_kernel`` returns."""

    def __init__(
        self, written_arguments: frozenset[int] | None, mark_written: Callable[[torch.Tensor], object]
    ) -> None:
        self._writes = written_arguments
        self._written = mark_written

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """More shared memory than usual: the device's own business."""

    def __call__(
        self,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (1, 1, 1),
        args: Sequence[Any] | None = None,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        """Refuse what torch refuses, and note what is written."""
        for position, value in enumerate(args or ()):
            if not isinstance(value, torch.Tensor):
                if not isinstance(value, int | float):
                    raise TypeError(f"Unsupported argument type: {type(value)}")
                continue
            if not on_accelerator(value) and not (value.device.type == "cpu" and value.is_pinned()):
                raise ValueError("All tensor arguments must be CUDA tensors or pinned CPU tensors")
            if self._writes is None or position in self._writes:
                self._written(value)


def written_positions(source: str, name: str) -> frozenset[int] | None:
    """The places of a kernel's parameters that it may write through; None where its parameters can't be read."""
    without_comments = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    found = re.search(rf"\b{re.escape(name)}\s*\(([^()]*)\)\s*\{{", without_comments)
    if found is None:
        return None
    parameters = found[1].split(",")
    return frozenset(
        place for place, one in enumerate(parameters) if "*" in one and not re.match(r"\s*(?:\w+\s+)?const\b", one)
    )
