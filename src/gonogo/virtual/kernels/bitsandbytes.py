"""bitsandbytes: its Python code runs (Linear4bit, Linear8bitLt, quantization, optimizers), but not its library.

All functions of ``libbitsandbytes`` get tensors that Python has allocated, and allocate none themselves. So the CUDA
implementations of operators in Python run unchanged on virtual tensors, with a library whose functions do nothing:
all allocations happen as in the real run. The values that operators write are unknown afterwards.

Paged optimizer states are CUDA managed memory, outside PyTorch's allocator, and are moved to the host when the device
is full: they are counted as host memory. Tested with bitsandbytes 0.40.0 and 0.50.2.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual.kernels.checks import on_accelerator
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor

Written = Callable[[torch.Tensor], object]
LIBRARY = translated("bitsandbytes' compiled library loads on the machine")
PAGED_STATES_ASSUMPTION = translated("bitsandbytes' paged states are in host memory")
_CPU_FUNCTION_MARKER = "_cpu"
"""Part of the names of functions that work on real CPU tensors, which are run on this machine."""


class _Library:
    """Replaces ``libbitsandbytes``: any function can be called, and does nothing."""

    compiled_with_cuda = True

    def __init__(self, real: Any, assume: Callable[[Text], object]) -> None:
        self._real = real
        self._assume = assume

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if _CPU_FUNCTION_MARKER in name:
            return getattr(self._real, name)

        def launch_kernel(*args: Any) -> int:
            self._assume(LIBRARY)
            return 0

        self.__dict__[name] = launch_kernel
        return launch_kernel

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


def install(patches: Patches, namespaces: dict[str, Any], written: Written, assume: Callable[[Text], object]) -> None:
    """Patch bitsandbytes when it is imported. ``namespaces``: the dispatch mode's handlers by operator namespace."""
    implementations: dict[str, Callable[..., Any]] = {}

    def replace_library(module: ModuleType) -> None:
        if not isinstance(module.lib, _Library):
            patches.set(module, "lib", _Library(module.lib, assume))

    def replace_cuda_setup(module: ModuleType) -> None:  # up to 0.42, whose import fails without CUDA libraries
        def run_cuda_setup(setup: Any) -> None:
            own = Path(module.__file__ or "").parent.parent / "libbitsandbytes_cpu.so"
            with contextlib.suppress(OSError):
                setup.lib = ctypes.CDLL(str(own))
            setup.lib = _Library(setup.lib, assume)
            setup.initialized, setup.cuda_setup_log = True, []

        patches.set(module.CUDASetup, "run_cuda_setup", run_cuda_setup)

    def record_kernel_implementations(module: ModuleType) -> None:
        register = module.register_kernel

        def register_and_note_kernel(operator: str, device: str, function: Any = None) -> Any:
            def note_implementation(function: Any) -> Any:
                if device == "cuda" or (device == "default" and operator not in implementations):
                    implementations[operator] = function
                return register(operator, device)(function)

            return note_implementation if function is None else note_implementation(function)

        patches.set(module, "register_kernel", register_and_note_kernel)

    def handle_operator(mode: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        operands = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        if not any(isinstance(value, VirtualTensor) for value in operands):
            return func(*args, **kwargs)
        name, overload = func._schema.name, func._schema.overload_name
        run = implementations.get(f"{name}.{overload}" if overload else name)
        if run is None or not any(on_accelerator(value) for value in operands):
            return mode.run(mode.operator(func), args, kwargs)
        with mode:
            out = run(*args, **kwargs)
        operator = mode.operator(func)
        given = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | kwargs
        for value in (
            *(given.get(name) for name in operator.write_names),
            *(out if isinstance(out, tuple) else (out,)),
        ):
            if isinstance(value, torch.Tensor):
                written(value)
        return out

    def replace_paged_tensors(module: ModuleType) -> None:
        def get_paged(*shape: int, dtype: torch.dtype = torch.float32, device: Any = None) -> Any:
            assume(PAGED_STATES_ASSUMPTION)
            paged: Any = torch.empty(shape, dtype=dtype)
            VirtualTensor.virtual_mode.memory.recategorise(paged.cell, "optimizer")
            paged.is_paged = True
            paged.page_deviceid = torch.device("cuda", 0).index if device is None else torch.device(device).index
            return paged

        patches.set(module, "get_paged", get_paged)

    logging.getLogger("bitsandbytes.cextension").disabled = True  # it would warn that the library is missing
    patches.set_item(namespaces, "bitsandbytes", handle_operator)
    patches.on_undo(after_import("bitsandbytes.cuda_setup.main", replace_cuda_setup))
    patches.on_undo(after_import("bitsandbytes.cextension", replace_library))
    patches.on_undo(after_import("bitsandbytes._ops", record_kernel_implementations))
    patches.on_undo(after_import("bitsandbytes.functional", replace_paged_tensors))
