"""``torch.npu`` (the module ``torch_npu.npu``): the parts that ``torch.cuda`` has no counterpart of."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual.npu.ascend_names import VirtualNpu
from gonogo.virtual.npu.names import NPU_API

_L2_CACHE_BYTES = 192 << 20
_UNSUPPORTED_REASON = translated("gonogo's stand-in for torch_npu does not have this name")


def make_module() -> ModuleType:
    """An empty ``torch_npu.npu``."""
    module = ModuleType("torch_npu.npu", "NPUs, as torch.cuda is for GPUs.")
    module.__path__ = []
    module.__file__ = __file__
    module.__package__ = "torch_npu.npu"
    return module


def fill_npu_module(module: ModuleType, npu: VirtualNpu) -> None:
    """Fill ``torch_npu.npu`` with its functions and classes; unsupported ones raise when called."""
    for name, value in {
        **_device_functions(npu),
        **_context_managers(npu),
        **_no_op_settings(),
        **_autocast_functions(),
    }.items():
        setattr(module, name, value)
    module.amp = _make_amp_module(module)  # type: ignore[attr-defined]
    for name, names in {
        "random": (
            "get_rng_state",
            "set_rng_state",
            "get_rng_state_all",
            "set_rng_state_all",
            "manual_seed",
            "manual_seed_all",
            "seed",
            "seed_all",
            "initial_seed",
        ),
        "streams": ("Stream", "Event", "ExternalStream"),
        "memory": tuple(name for name in vars(module) if "memory" in name or "mem_" in name or "cache" in name),
        "utils": (
            "synchronize",
            "set_device",
            "current_device",
            "device",
            "device_of",
            "stream",
            "set_stream",
            "current_stream",
            "default_stream",
            "is_bf16_supported",
            "_get_device_index",
        ),
    }.items():
        part = ModuleType(f"torch_npu.npu.{name}")
        vars(part).update({known: getattr(module, known) for known in names})
        setattr(module, name, part)
    module.memory.memory_summary = module.memory_summary = _memory_summary(module)  # type: ignore[attr-defined]
    missing = NPU_API - set(vars(module))
    module.__all__ = sorted(NPU_API)  # type: ignore[attr-defined]
    for name in missing:
        refuse = unsupported_function(f"torch.npu.{name}", npu.unsupported)
        setattr(module, name, contextlib.contextmanager(refuse) if name == "use_mem_pool" else refuse)
    for name, value in vars(module).items():
        if isinstance(value, ModuleType) and value.__name__ == f"torch_npu.npu.{name}":
            sys.modules[value.__name__] = sys.modules[f"torch.npu.{name}"] = value


def unsupported_function(feature: str, unsupported_error: Callable[[str, Text], BaseException]) -> Callable[..., Any]:
    """A function that raises ``unsupported_error`` when called, since ``feature`` can't be rehearsed."""

    def raise_unsupported(*args: Any, **kwargs: Any) -> Any:
        raise unsupported_error(feature, _UNSUPPORTED_REASON)

    return raise_unsupported


class _NPUDeviceProperties(SimpleNamespace):
    """Stand-in for ``torch_npu._C._NPUDeviceProperties``, with the same repr."""

    def __repr__(self) -> str:
        return (
            f"_NPUDeviceProperties(name='{self.name}', total_memory={self.total_memory >> 20}MB, "
            f"cube_core_num={self.cube_core_num}, vector_core_num={self.vector_core_num}, "
            f"L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


def _device_functions(npu: VirtualNpu) -> dict[str, Any]:
    def get_device_properties(device: Any = None) -> _NPUDeviceProperties:
        index = npu.device_index(device)
        if not 0 <= index < npu.device_count():
            raise AssertionError("Invalid device id")
        npu.initialise()
        cores = npu.accelerator.multiprocessors
        return _NPUDeviceProperties(
            name=npu.accelerator.product,
            total_memory=npu.accelerator.total_bytes,
            cube_core_num=cores,
            vector_core_num=2 * cores,
            multi_processor_count=cores,
            L2_cache_size=_L2_CACHE_BYTES,
        )

    runtime = SimpleNamespace(
        npuHostRegister=lambda address, size, flags: 0,
        npuHostUnregister=lambda address: 0,
        npuStreamCreate=unsupported_function("torch.npu.npurt().npuStreamCreate", npu.unsupported),
        npuStreamDestroy=unsupported_function("torch.npu.npurt().npuStreamDestroy", npu.unsupported),
    )

    def npurt() -> SimpleNamespace:
        npu.initialise()
        return runtime

    return {
        "get_device_properties": get_device_properties,
        "get_device_name": lambda device=None: get_device_properties(device).name,
        "get_device_capability": _capability,
        "is_bf16_supported": lambda including_emulation=False: True,
        "_get_device_index": lambda device, optional=False, allow_cpu=False: npu.device_index(device),
        "npurt": npurt,
        "_DeferredNpuCallError": type("_DeferredNpuCallError", (Exception,), {}),
    }


def _capability(device: Any = None) -> tuple[int, int] | None:
    """The value of TORCH_NPU_DEVICE_CAPABILITY, which users set for programs that require one, or None."""
    stated = re.fullmatch(r"(\d+)\.(\d+)", os.environ.get("TORCH_NPU_DEVICE_CAPABILITY", ""))
    return None if stated is None else (int(stated[1]), int(stated[2]))


def _context_managers(npu: VirtualNpu) -> dict[str, Any]:
    class device:
        """Switches the current device inside the context; a negative index or None has no effect."""

        def __init__(self, device: Any) -> None:
            self.idx = -1 if device is None else npu.device_index(device) if not isinstance(device, int) else device

        def __enter__(self) -> None:
            if self.idx >= 0:
                self.before = npu.current_device
                npu.current_device = self.idx

        def __exit__(self, *error: object) -> None:
            if self.idx >= 0:
                npu.current_device = self.before

    class device_of(device):
        """Switches to the device of a tensor."""

        def __init__(self, obj: Any) -> None:
            super().__init__(obj.get_device() if obj.device.type == "npu" else -1)

    class StreamContext:
        """Makes a stream the current one; None has no effect."""

        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            if self.stream is not None:
                self.stream.__enter__()

        def __exit__(self, *error: object) -> None:
            if self.stream is not None:
                self.stream.__exit__(*error)

    return {"device": device, "device_of": device_of, "StreamContext": StreamContext, "stream": StreamContext}


def _no_op_settings() -> dict[str, Any]:
    """Settings of CANN that affect neither shapes nor memory."""
    task_queue = [True]
    names = "set_option set_compile_mode set_aoe set_mm_bmm_format_nd set_dump init_dump finalize_dump ipc_collect"
    quiet: dict[str, Any] = {name: lambda *args, **kwargs: None for name in names.split()}
    return quiet | {
        "config": SimpleNamespace(allow_internal_format=False),
        "matmul": SimpleNamespace(allow_hf32=False),
        "conv": SimpleNamespace(allow_hf32=True),
        "is_jit_compile_false": lambda: True,
        "get_mm_bmm_format_nd": lambda: True,
        "set_task_queue_enable": lambda mode: task_queue.__setitem__(0, mode),
        "get_task_queue_enable": lambda: task_queue[0],
        "set_deterministic_level": lambda level: None,
        "enable_deterministic_with_backward": lambda tensor: tensor,
        "disable_deterministic_with_backward": lambda tensor: tensor,
        "get_npu_overflow_flag": _no_overflow_flag,
        "clear_npu_overflow_flag": lambda: None,
        "set_op_timeout_ms": lambda timeout: None,
        "empty_virt_addr_cache": lambda: None,
        "host_empty_cache": lambda: None,
        "mstx": SimpleNamespace(
            mark=lambda *args, **kwargs: None,
            range_start=lambda *args, **kwargs: 0,
            range_end=lambda *args, **kwargs: None,
            mstx_range=lambda *args, **kwargs: contextlib.nullcontext(),
        ),
    }


def _no_overflow_flag() -> bool:
    raise RuntimeError("Unsupported api when soc_version >= Ascend910B1, please use npu_check_overflow")


def _autocast_functions() -> dict[str, Any]:
    return {
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16, torch.float32],
        "is_autocast_enabled": lambda: torch.is_autocast_enabled("npu"),
        "set_autocast_enabled": lambda enabled: torch.set_autocast_enabled("npu", enabled),
        "get_autocast_dtype": lambda: torch.get_autocast_dtype("npu"),
        "set_autocast_dtype": lambda dtype: torch.set_autocast_dtype("npu", dtype),
    }


def _make_amp_module(module: ModuleType) -> ModuleType:
    class autocast(torch.autocast):
        """``torch.autocast("npu", …)``."""

        def __init__(
            self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
        ) -> None:
            super().__init__("npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)

    class GradScaler(torch.amp.GradScaler):
        """``torch.amp.GradScaler("npu", …)``."""

        def __init__(
            self,
            init_scale: float = 2.0**16,
            growth_factor: float = 2.0,
            backoff_factor: float = 0.5,
            growth_interval: int = 2000,
            dynamic: bool = True,
            enabled: bool = True,
        ) -> None:
            interval = growth_interval if dynamic else sys.maxsize
            super().__init__("npu", init_scale, growth_factor, backoff_factor, interval, enabled)

    amp = ModuleType("torch_npu.npu.amp")
    amp.__path__ = []
    amp.autocast, amp.GradScaler = autocast, GradScaler  # type: ignore[attr-defined]
    amp.custom_fwd = torch.amp.custom_fwd  # type: ignore[attr-defined]
    amp.custom_bwd = torch.amp.custom_bwd  # type: ignore[attr-defined]
    amp.autocast_mode = amp.grad_scaler = amp  # type: ignore[attr-defined]
    sys.modules["torch_npu.npu.amp.autocast_mode"] = sys.modules["torch_npu.npu.amp.grad_scaler"] = amp
    return amp


def _memory_summary(module: ModuleType) -> Any:
    """``torch.cuda.memory_summary``, reading the given module's ``memory_stats``."""
    original: Any = torch.cuda.memory.memory_summary
    names = {**vars(torch.cuda.memory), **vars(module)}
    return FunctionType(original.__code__, names, "memory_summary", original.__defaults__)
