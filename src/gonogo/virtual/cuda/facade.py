"""The facade of ``torch.cuda``: a process without a CUDA device sees N of one type.

:func:`install` replaces the functions and classes of ``torch.cuda``, ``torch.accelerator`` and the parts of
``torch._C`` below them. No driver is called, and on a CUDA build any other ``torch._C._cuda_*`` function raises.
Tested with torch 2.13.0 (CPU build).

The parts, one file each: ``devices.py`` (which device, and its properties), ``streams.py``, ``memory.py``,
``random.py``, ``tensors.py`` (tensors that are moved to the device or pinned); all of them use ``state.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from gonogo.evidence.environment.hardware import Accelerator
from gonogo.virtual.cuda import devices, memory, random, streams, tensors
from gonogo.virtual.cuda.state import Unsupported, VirtualCuda, not_rehearsed_error
from gonogo.virtual.memory.caching_allocator import CachingAllocator
from gonogo.virtual.patching.patches import Patches

PARTS = (devices, streams, memory, random)
"""The modules that provide the replacements for ``torch.cuda``."""


def install(
    accelerator: Accelerator,
    count: int,
    get_allocator: Callable[[int], CachingAllocator],
    *,
    visible_devices: str | None = None,
    unsupported: Unsupported = not_rehearsed_error,
    pin: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> VirtualCuda:
    """Install the facade. Call it right after importing torch, with ``CUDA_VISIBLE_DEVICES`` empty until then.

    ``count``: devices of the node; ``get_allocator``: returns the allocator of a device index, which answers queries
    about memory; ``visible_devices``: the value of ``CUDA_VISIBLE_DEVICES`` for the program (None: unset), which is
    set here; ``unsupported``: creates the exception for what can't be rehearsed (CUDA graphs, IPC); ``pin``: makes
    the pinned copy of a real CPU tensor (default: a copy that is marked as pinned).

    Returns the state; its ``undo()`` removes the facade.
    """
    cuda = VirtualCuda(accelerator, count, get_allocator, unsupported)
    hide_real_devices(cuda.patches)
    set_visible_devices(cuda, visible_devices)
    replaced: list[tuple[Any, Any]] = []
    for part in PARTS:
        for module, name, value in part.replacements(cuda):
            if module is not torch._C and not hasattr(module, name):
                continue  # missing in an older torch; a CPU build lacks some of torch._C's
            original = getattr(module, name, None)
            if callable(original) and original is not value:
                replaced.append((original, value))
            cuda.patches.set(module, name, value)
    cuda.patches.replace_everywhere(replaced)
    tensors.install(cuda, pin)
    cuda.patches.set_item(os.environ, "DS_ACCELERATOR", "cuda")
    return cuda


def visible_count(count: int, visible_devices: str | None) -> int:
    """How many of ``count`` devices ``CUDA_VISIBLE_DEVICES`` leaves: the list ends at the first invalid entry."""
    if visible_devices is None:
        return count
    seen: list[str] = []
    for entry in visible_devices.split(","):
        name = entry.strip()
        if name.startswith(("GPU-", "MIG-")):
            seen.append(name)
            continue
        if not name.isdecimal() or int(name) >= count:
            break
        if name in seen:
            return 0
        seen.append(name)
    return min(len(seen), count)


def hide_real_devices(patches: Patches) -> None:
    """Make a CUDA build initialise its driver without devices, and block all other calls into the driver."""
    count_devices = getattr(torch._C, "_cuda_getDeviceCount", None)
    if count_devices is None:
        return
    patches.set_item(os.environ, "CUDA_VISIBLE_DEVICES", "")
    found = count_devices()  # the driver reads the variable only once per process, at its first call
    if found:
        raise RuntimeError(f"{found} real CUDA devices are in use by this process: a rehearsal must not touch them")
    harmless = {"_cuda_getCompiledVersion", "_cuda_getArchFlags", "_cuda_isInBadFork", "_cuda_CUDAAllocator"}
    for name in dir(torch._C):
        value = getattr(torch._C, name)
        if name.startswith("_cuda_") and name not in harmless and callable(value) and not isinstance(value, type):
            patches.set(torch._C, name, _make_unsupported_function(name))


def _make_unsupported_function(name: str) -> Callable[..., Any]:
    def raise_not_implemented(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch._C.{name} would enter the CUDA driver: it can't be rehearsed")

    return raise_not_implemented


def set_visible_devices(cuda: VirtualCuda, visible_devices: str | None) -> None:
    """Set the variable for the program (None: unset), and make the facade's device count follow it."""
    variable = cuda.visible_variable
    cuda.patches.set_item(os.environ, variable, visible_devices or "")
    if visible_devices is None:
        del os.environ[variable]
    total = cuda.count
    cuda.visible = lambda: visible_count(total, os.environ.get(variable))
