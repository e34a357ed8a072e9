"""``torch.cuda.memory``: all queries are answered by the replayed caching allocator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from gonogo.finding import translated
from gonogo.virtual.cuda.state import Replacement, VirtualCuda
from gonogo.virtual.memory.allocator_settings import AllocatorSettings

if TYPE_CHECKING:
    from gonogo.virtual.memory.caching_allocator import CachingAllocator


def replacements(cuda: VirtualCuda) -> Iterator[Replacement]:
    """Yield (module, attribute name, replacement) for the memory functions of ``torch.cuda``."""
    for name, value in {**_query_functions(cuda), **_control_functions(cuda)}.items():
        yield torch.cuda.memory, name, value
        if name in vars(torch.cuda):
            yield torch.cuda, name, value


def free_and_total(cuda: VirtualCuda, index: int) -> tuple[int, int]:
    """``cudaMemGetInfo``: total memory, and what context, communicators and segments leave free."""
    accelerator = cuda.accelerator
    used = accelerator.allowance_bytes + cuda.allocator_of(index).reserved
    return max(accelerator.total_bytes - used, 0), accelerator.total_bytes


def nested_stats(allocator: CachingAllocator) -> dict[str, Any]:
    """``memory_stats`` as nested dicts, in the shape that C++ returns."""
    nested: dict[str, Any] = {}
    for key, value in allocator.memory_stats().items():
        *path, last = key.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def _query_functions(cuda: VirtualCuda) -> dict[str, Any]:
    """Functions of ``torch.cuda`` that report memory."""

    def device_allocator(device: Any) -> CachingAllocator:
        return cuda.allocator_of(cuda.device_index(device))

    def mem_get_info(device: Any = None) -> tuple[int, int]:
        index = cuda.device_index(device)
        cuda.check_ordinal(index)
        return free_and_total(cuda, index)

    def list_gpu_processes(device: Any = None) -> str:
        return f"GPU:{cuda.device_index(device)}\nno processes are running"

    return {
        "memory_allocated": lambda device=None: device_allocator(device).allocated,
        "max_memory_allocated": lambda device=None: device_allocator(device).peak_allocated,
        "memory_reserved": lambda device=None: device_allocator(device).reserved,
        "max_memory_reserved": lambda device=None: device_allocator(device).peak_reserved,
        "memory_cached": lambda device=None: device_allocator(device).reserved,
        "max_memory_cached": lambda device=None: device_allocator(device).peak_reserved,
        "memory_stats": lambda device=None: device_allocator(device).memory_stats(),
        "memory_stats_as_nested_dict": lambda device=None: nested_stats(device_allocator(device)),
        "host_memory_stats": dict,
        "host_memory_stats_as_nested_dict": dict,
        "memory_snapshot": lambda *args, **kwargs: [],
        "_snapshot": lambda *args, **kwargs: {"segments": [], "device_traces": []},
        "mem_get_info": mem_get_info,
        "list_gpu_processes": list_gpu_processes,
        "get_allocator_backend": lambda: "native",
        "get_per_process_memory_fraction": lambda device=None: cuda.fractions.get(cuda.device_index(device), 1.0),
    }


def _control_functions(cuda: VirtualCuda) -> dict[str, Any]:
    """Functions of ``torch.cuda`` that free, limit or reset memory."""

    def empty_cache() -> None:
        if cuda.initialized:
            for index in range(cuda.count):
                cuda.allocator_of(index).empty_cache()

    def reset_peaks(device: Any = None) -> None:
        cuda.allocator_of(cuda.device_index(device)).reset_peaks()

    def set_fraction(fraction: float, device: Any = None) -> None:
        if not isinstance(fraction, float):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        index = cuda.device_index(device)
        cuda.fractions[index] = fraction
        cuda.allocator_of(index).set_memory_fraction(fraction, cuda.accelerator.total_bytes)

    def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
        return cuda.allocator_of(cuda.device_index(device)).malloc(size, int(getattr(stream, "stream_id", stream or 0)))

    def caching_allocator_delete(address: int) -> None:
        for index in range(cuda.count):
            try:
                cuda.allocator_of(index).free(address)
            except ValueError:
                continue
            return
        raise RuntimeError(f"invalid device pointer: {address:#x}")

    def unsupported_function(feature: str) -> Any:
        def raise_unsupported(*args: Any, **kwargs: Any) -> Any:
            raise cuda.unsupported(
                f"torch.{cuda.kind}.{feature}", translated("a rehearsal replays only PyTorch's own caching allocator")
            )

        return raise_unsupported

    def unsupported_class(name: str) -> type:
        """A class, because programs use the name in annotations: ``MemPool | None``."""
        return type(name, (), {"__new__": unsupported_function(name)})

    return {
        "empty_cache": empty_cache,
        "reset_peak_memory_stats": reset_peaks,
        "reset_accumulated_memory_stats": lambda device=None: None,
        "reset_max_memory_allocated": reset_peaks,
        "reset_max_memory_cached": reset_peaks,
        "reset_peak_host_memory_stats": lambda: None,
        "reset_accumulated_host_memory_stats": lambda: None,
        "set_per_process_memory_fraction": set_fraction,
        "caching_allocator_alloc": caching_allocator_alloc,
        "caching_allocator_delete": caching_allocator_delete,
        "caching_allocator_enable": lambda value=True: None,
        "caching_allocator_disabled": nullcontext,
        "_record_memory_history": lambda *args, **kwargs: None,
        "_dump_snapshot": lambda *args, **kwargs: None,
        "_set_allocator_settings": lambda env: AllocatorSettings.parse(env, cuda.kind) and None,
        "change_current_allocator": unsupported_function("memory.change_current_allocator"),
        "CUDAPluggableAllocator": unsupported_class("CUDAPluggableAllocator"),
        "MemPool": unsupported_class("MemPool"),
        # torch 2.14's compiler accesses the __wrapped__ of use_mem_pool
        "use_mem_pool": contextmanager(unsupported_function("use_mem_pool")),
    }
