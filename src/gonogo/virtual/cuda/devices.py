"""``torch.cuda``: availability, current device, device properties; ``torch.accelerator``; versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual.cuda.memory import free_and_total, nested_stats
from gonogo.virtual.cuda.state import Replacement, VirtualCuda

_LIMITS_BY_ARCHITECTURE = {
    # compute capability: (threads per multiprocessor, opt-in shared memory per block, L2 MiB)
    (7, 0): (2048, 96 << 10, 6),
    (7, 5): (1024, 64 << 10, 4),
    (8, 0): (2048, 163 << 10, 40),
    (8, 6): (1536, 99 << 10, 6),
    (8, 9): (1536, 99 << 10, 72),
    (9, 0): (2048, 227 << 10, 50),
    (10, 0): (2048, 227 << 10, 126),
    (12, 0): (1536, 99 << 10, 96),
}
"""CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; L2 of the largest chip."""

_CUDA_BY_TORCH_VERSION = ((2, 11, "13.0"), (2, 8, "12.8"), (2, 7, "12.6"), (2, 5, "12.4"), (2, 0, "12.1"))
"""CUDA version of the wheels on PyPI by torch version; used for ``torch.version.cuda`` if this torch has none."""

NCCL_VERSION = (2, 27, 5)


class _CudaDeviceProperties(SimpleNamespace):
    """Replaces ``torch._C._CudaDeviceProperties``, with PyTorch's repr."""

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


def cuda_version() -> str:
    """The CUDA version of this torch; for a CPU build, that of the PyPI wheel with the same torch version."""
    if torch.version.cuda:
        return str(torch.version.cuda)
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    return next((cuda for a, b, cuda in _CUDA_BY_TORCH_VERSION if (major, minor) >= (a, b)), "11.8")


def replacements(cuda: VirtualCuda) -> Iterator[Replacement]:
    """Yield (module, attribute name, replacement) for the device functions of ``torch.cuda``."""
    for name, value in _device_functions(cuda).items():
        yield torch.cuda, name, value
    for name, value in _accelerator_functions(cuda).items():
        yield torch._C, name, value
    yield torch.cuda, "_cudart", _cudart_functions(cuda)
    for name, function in _c_functions(cuda).items():
        yield torch._C, name, function
    yield torch.version, "cuda", cuda_version()
    yield torch.backends.cuda, "is_built", lambda: True
    yield torch.backends.cudnn, "is_available", lambda: True
    yield torch.backends.cudnn, "version", lambda: 91002
    yield torch.cuda.nccl, "version", lambda: NCCL_VERSION
    for name in ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "unique_id", "init_rank"):
        yield (
            torch.cuda.nccl,
            name,
            _unsupported_call(
                cuda,
                f"torch.cuda.nccl.{name}",
                translated("this function calls NCCL directly, which does not run in a rehearsal"),
            ),
        )
    yield (
        torch.cuda.nvtx,
        "_nvtx",
        SimpleNamespace(
            rangePushA=lambda message: 0,
            rangePop=lambda: 0,
            rangeStartA=lambda message: 0,
            rangeEnd=lambda range_id: None,
            markA=lambda message: None,
            deviceRangeStart=lambda message, stream: None,
            deviceRangeEnd=lambda range_id, stream: None,
        ),
    )


def _unsupported_call(cuda: VirtualCuda, feature: str, reason: Text) -> Callable[..., Any]:
    def raise_unsupported(*args: Any, **kwargs: Any) -> Any:
        raise cuda.unsupported(feature, reason)

    return raise_unsupported


def _device_functions(cuda: VirtualCuda) -> dict[str, Any]:
    """Functions of ``torch.cuda`` that select or describe devices."""
    capability = cuda.accelerator.compute_capability

    def set_device(device: Any) -> None:
        index = cuda.device_index_to_set(device)
        if index >= 0:
            cuda.current_device = index

    def exchange_device(device: int) -> int:
        if device < 0:
            return -1
        before = cuda.current_device
        cuda.current_device = device
        return before

    def get_device_properties(device: Any = None) -> _CudaDeviceProperties:
        cuda.initialise()
        index = cuda.device_index(device)
        if not 0 <= index < cuda.count:
            raise AssertionError("Invalid device id")
        return _device_properties(cuda, index)

    def get_device_capability(device: Any = None) -> tuple[int, int]:
        properties = get_device_properties(device)
        return properties.major, properties.minor

    def current_device() -> int:
        cuda.initialise()
        return cuda.current_device

    def cudart() -> SimpleNamespace:
        cuda.initialise()
        return torch.cuda._cudart  # type: ignore[attr-defined, no-any-return]

    def lazy_call(function: Callable[[], object], **kwargs: Any) -> None:
        function()

    def can_access_peer(device: Any, peer_device: Any) -> bool:
        first, second = cuda.device_index(device), cuda.device_index(peer_device)
        if not 0 <= first < cuda.device_count():
            raise AssertionError("Invalid device id")
        if not 0 <= second < cuda.device_count():
            raise AssertionError("Invalid peer device id")
        return first != second

    architectures = sorted({"sm_75", "sm_80", "sm_86", "sm_90", f"sm_{capability[0]}{capability[1]}"})
    sync_mode = [0]

    def set_sync_debug_mode(debug_mode: int | str) -> None:
        modes: dict[int | str, int] = {"default": 0, "warn": 1, "error": 2}
        sync_mode[0] = modes.get(debug_mode, debug_mode)  # type: ignore[arg-type]

    return {
        "is_available": lambda: cuda.device_count() > 0,
        "device_count": cuda.device_count,
        "_device_count_nvml": cuda.device_count,
        "_raw_device_count_nvml": cuda.device_count,
        "_nvml_based_avail": lambda: False,
        "_is_compiled": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "is_initialized": lambda: cuda.initialized,
        "init": cuda.initialise,
        "_lazy_init": cuda.initialise,
        "_lazy_call": lazy_call,
        "_check_capability": lambda: None,
        "_check_cubins": lambda: None,
        "_exchange_device": exchange_device,
        "_maybe_exchange_device": exchange_device,
        "set_device": set_device,
        "current_device": current_device,
        "get_device_properties": get_device_properties,
        "get_device_name": lambda device=None: get_device_properties(device).name,
        "get_device_capability": get_device_capability,
        "is_bf16_supported": lambda including_emulation=True: capability >= (8, 0) or including_emulation,
        "is_tf32_supported": lambda: capability >= (8, 0),
        "_check_bf16_tensor_supported": lambda device: True,
        "can_device_access_peer": can_access_peer,
        "get_arch_list": lambda: list(architectures),
        "get_gencode_flags": lambda: " ".join(f"-gencode compute=compute_{a[3:]},code={a}" for a in architectures),
        "synchronize": lambda device=None: cuda.check_ordinal(cuda.device_index(device)),
        "ipc_collect": lambda: None,
        "_sleep": lambda cycles: None,
        "cudart": cudart,
        "set_sync_debug_mode": set_sync_debug_mode,
        "get_sync_debug_mode": lambda: sync_mode[0],
        "utilization": lambda device=None: 0,
        "memory_usage": lambda device=None: 0,
        "temperature": lambda device=None: 40,
        "power_draw": lambda device=None: 100_000,
        "clock_rate": lambda device=None: 1000,
        "device_memory_used": lambda device=None: _used_bytes(cuda, device),
        "current_blas_handle": lambda: 0,
        "current_solver_handle": lambda: 0,
    }  # fmt: skip


def _used_bytes(cuda: VirtualCuda, device: Any) -> int:
    return cuda.accelerator.allowance_bytes + cuda.allocator_of(cuda.device_index(device)).reserved


def _device_properties(cuda: VirtualCuda, index: int) -> _CudaDeviceProperties:
    accelerator = cuda.accelerator
    threads, shared, level_2 = _LIMITS_BY_ARCHITECTURE.get(accelerator.compute_capability, (2048, 99 << 10, 50))
    return _CudaDeviceProperties(
        name=accelerator.product,
        major=accelerator.compute_capability[0],
        minor=accelerator.compute_capability[1],
        total_memory=accelerator.total_bytes,
        multi_processor_count=accelerator.multiprocessors,
        max_threads_per_multi_processor=threads,
        max_threads_per_block=1024,
        warp_size=32,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=shared + 1024,
        L2_cache_size=level_2 << 20,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName="",
        uuid=f"00000000-0000-0000-0000-{cuda.physical(index):012d}",
        pci_bus_id=index + 1,
        pci_device_id=0,
        pci_domain_id=0,
    )


def _cudart_functions(cuda: VirtualCuda) -> SimpleNamespace:
    """The result of ``torch.cuda.cudart()``: the few functions that Python programs call, all of which succeed."""

    def mem_get_info(device: Any = None) -> tuple[int, int]:
        return torch.cuda.mem_get_info(device)

    return SimpleNamespace(
        cudaError=SimpleNamespace(success=0),
        cudaGetErrorString=lambda code: "no error" if code == 0 else "unknown error",
        cudaProfilerStart=lambda: 0,
        cudaProfilerStop=lambda: 0,
        cudaHostRegister=lambda address, size, flags: 0,
        cudaHostUnregister=lambda address: 0,
        cudaMemGetInfo=mem_get_info,
        cudaDeviceSynchronize=lambda: 0,
    )


def _accelerator_functions(cuda: VirtualCuda) -> dict[str, Any]:
    """The functions behind ``torch.accelerator``."""
    accelerator = torch.device(cuda.kind)

    def set_device(index: int) -> None:
        cuda.current_device = index

    def exchange_device(index: int) -> int:
        before = cuda.current_device
        cuda.current_device = index
        return before

    return {
        "_accelerator_deviceCount": cuda.api.device_count,  # up to torch 2.6
        "_get_accelerator": lambda check=None: accelerator,
        "_accelerator_getAccelerator": lambda: accelerator,
        "_accelerator_getDeviceIndex": lambda: cuda.current_device,
        "_accelerator_setDeviceIndex": set_device,
        "_accelerator_exchangeDevice": exchange_device,
        "_accelerator_maybeExchangeDevice": exchange_device,
        "_accelerator_getDeviceCapability": lambda index: {"supported_dtypes": set(_supported_dtypes())},
        "_accelerator_getStream": lambda index: cuda.api.current_stream(index),
        "_accelerator_setStream": lambda stream: cuda.api.set_stream(stream),
        "_accelerator_synchronizeDevice": lambda index: cuda.check_ordinal(index),
        "_accelerator_isAllocatorInitialized": lambda: cuda.initialized,
        "_accelerator_emptyCache": lambda: cuda.api.empty_cache(),
        "_accelerator_emptyHostCache": lambda: None,
        "_accelerator_getDeviceStats": lambda index: nested_stats(cuda.allocator_of(index)),
        "_accelerator_resetAccumulatedStats": lambda index: None,
        "_accelerator_resetPeakStats": lambda index: cuda.allocator_of(index).reset_peaks(),
        "_accelerator_getMemoryInfo": lambda index: free_and_total(cuda, index),
    }


def _supported_dtypes() -> Iterator[torch.dtype]:
    return (value for value in vars(torch).values() if isinstance(value, torch.dtype) and not value.is_complex)


def _blas_functions(cuda: VirtualCuda) -> dict[str, Any]:
    """The functions behind ``torch.backends.cuda.cublas_workspace_size`` and for clearing the workspaces."""

    def clear_cublas_workspaces(stream: int | None = None) -> None:
        if cuda.blas is not None:
            cuda.blas.free_workspaces(stream)

    def workspace_size_setter(name: str) -> Callable[[int], None]:
        return lambda size: setattr(cuda.blas, name, size) if cuda.blas is not None else None

    return {
        "_cuda_clearCublasWorkspaces": clear_cublas_workspaces,
        "_cuda_getCublasWorkspaceSize": lambda: cuda.blas.size if cuda.blas is not None else 0,
        "_cuda_setCublasWorkspaceSize": workspace_size_setter("size"),
        "_cuda_getCublasLtWorkspaceSize": lambda: cuda.blas.cublaslt_size if cuda.blas is not None else 0,
        "_cuda_setCublasLtWorkspaceSize": workspace_size_setter("cublaslt_size"),
    }


def _c_functions(cuda: VirtualCuda) -> dict[str, Any]:
    """Functions of ``torch._C`` that programs and other parts of torch call directly, bypassing ``torch.cuda``."""
    return {
        "_cuda_getDeviceCount": cuda.device_count,
        "_cuda_init": cuda.initialise,
        "_cuda_getDevice": lambda: cuda.current_device,
        "_cuda_setDevice": lambda index: torch.cuda.set_device(index),
        "_cuda_exchangeDevice": lambda index: torch.cuda._exchange_device(index),
        "_cuda_maybeExchangeDevice": lambda index: torch.cuda._exchange_device(index),
        "_cuda_isInBadFork": lambda: False,
        "_cuda_synchronize": lambda: None,
        "_cuda_getCurrentRawStream": lambda index: cuda.current_stream_id(index),
        **_blas_functions(cuda),
        "_cuda_isHistoryEnabled": lambda: False,
        "_cuda_get_cudnn_benchmark_limit": lambda: 10,
        "_cuda_set_cudnn_benchmark_limit": lambda limit: None,
        "_cuda_set_sync_debug_mode": lambda mode: None,
    }
