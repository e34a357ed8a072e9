"""CUDA kernels that a program compiles at run time (``torch.cuda._compile_kernel``): launches do nothing.

A raw kernel works on the tensors that it gets and allocates none: skipping it changes neither shapes nor memory. Its
C parameters tell what it may write: pointers that are not ``const``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual.kernels.checks import on_accelerator
from gonogo.virtual.patching.patches import Patches

_COMPILE_KERNEL_NAME = "_compile_kernel"
"""In ``torch.cuda`` since torch 2.8."""
_LAUNCHES = translated("CUDA kernel {name} compiles and runs on the machine")


def install(patches: Patches, written: Callable[[torch.Tensor], object], assume: Callable[[Text], object]) -> None:
    """Replace the compilation of kernels by NVRTC, if this torch has it."""
    if not hasattr(torch.cuda, _COMPILE_KERNEL_NAME):
        return

    def compile_kernel(kernel_source: str, kernel_name: str, *_args: Any, **_kwargs: Any) -> _Kernel:
        assume(_LAUNCHES.format(name=kernel_name))
        return _Kernel(written_positions(kernel_source, kernel_name), written)

    patches.set(torch.cuda, _COMPILE_KERNEL_NAME, compile_kernel)


class _Kernel:
    """The object that ``_compile_kernel`` returns."""

    def __init__(
        self, written_arguments: frozenset[int] | None, mark_written: Callable[[torch.Tensor], object]
    ) -> None:
        self._writes = written_arguments
        self._written = mark_written

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """Does nothing: the setting has no effect here."""

    def __call__(
        self,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (1, 1, 1),
        args: Sequence[Any] | None = None,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        """Launch the kernel: make torch's checks of arguments, and mark the tensors that it writes."""
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
    """The positions of parameters that a kernel may write through; None if its parameters can't be parsed."""
    without_comments = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    found = re.search(rf"\b{re.escape(name)}\s*\(([^()]*)\)\s*\{{", without_comments)
    if found is None:
        return None
    parameters = found[1].split(",")
    return frozenset(
        place for place, one in enumerate(parameters) if "*" in one and not re.match(r"\s*(?:\w+\s+)?const\b", one)
    )
