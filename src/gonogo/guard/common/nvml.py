"""A minimal binding of NVIDIA's management library (NVML): creates no CUDA context, never synchronizes the GPU."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

import msgspec

from gonogo.evidence.guarded.records import GpuRecord


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class GpuMemory(msgspec.Struct, frozen=True):
    """The memory of a whole GPU, over all processes that use it."""

    total: int
    used: int


@cache
def _load_nvml() -> Any:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def _query_string(function: str, *arguments: Any) -> str:
    buffer = ctypes.create_string_buffer(128)
    answer = getattr(_load_nvml(), function)(*arguments, buffer, 128)
    return buffer.value.decode(errors="replace") if answer == 0 else ""


@cache
def _device_handle(local_rank: int) -> Any:
    """The GPU that a rank uses, according to ``CUDA_VISIBLE_DEVICES`` and its local rank, or None."""
    library = _load_nvml()
    if library is None:
        return None
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if len(names) > 1 and local_rank >= len(names):
        return None
    name = names[local_rank % len(names)] if names else str(local_rank)
    handle = ctypes.c_void_p()
    if name.isdecimal():
        answer = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(name)), ctypes.byref(handle))
    else:
        answer = library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
    return handle if answer == 0 else None


def driver_version() -> str:
    """Version of the NVIDIA driver; empty if there is none."""
    return _query_string("nvmlSystemGetDriverVersion") if _load_nvml() is not None else ""


def find_gpu(local_rank: int) -> GpuRecord | None:
    """The GPU on which a rank computes, or None if there is no NVIDIA GPU."""
    handle, memory = _device_handle(local_rank), gpu_memory(local_rank)
    if handle is None or memory is None:
        return None
    name, uuid = _query_string("nvmlDeviceGetName", handle), _query_string("nvmlDeviceGetUUID", handle)
    return GpuRecord(name, memory.total, f"cuda:{local_rank}", driver_version(), uuid)


def gpu_memory(local_rank: int) -> GpuMemory | None:
    """The memory of a rank's GPU, or None."""
    handle = _device_handle(local_rank)
    if handle is None:
        return None
    memory = _Memory()
    if _load_nvml().nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != 0:
        return None
    return GpuMemory(memory.total, memory.used)
