"""The facade of ``torch.npu``: makes a process without an NPU see N of one type, and no CUDA.

It reuses the facade of ``torch.cuda`` (``../cuda/``) under ``torch.npu``; what differs in torch_npu is in
``ascend_names.py`` and ``api.py``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from gonogo.evidence.environment.hardware import Accelerator
from gonogo.finding import Text, translated
from gonogo.virtual.cuda import tensors
from gonogo.virtual.cuda.facade import PARTS, hide_real_devices, set_visible_devices
from gonogo.virtual.cuda.state import Unsupported
from gonogo.virtual.memory.caching_allocator import CachingAllocator
from gonogo.virtual.npu import api, attention, operators, package
from gonogo.virtual.npu.ascend_names import VirtualNpu
from gonogo.virtual.npu.names import split_words

_CANN_PATH = "/usr/local/Ascend/ascend-toolkit/latest"
_NO_CUDA_MESSAGE = "Torch not compiled with CUDA enabled"
_CUDA_MODULES = (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams)
_CUDA_ONLY_NAMES = split_words(
    "cudart _cudart get_arch_list get_gencode_flags temperature power_draw clock_rate memory_usage device_memory_used "
    "is_tf32_supported _check_bf16_tensor_supported _check_cubins current_solver_handle CUDAPluggableAllocator "
    "CUDAGraph get_stream_from_external _device_count_nvml _raw_device_count_nvml _nvml_based_avail list_gpu_processes"
)
"""Attributes that ``torch.cuda`` has and ``torch.npu`` doesn't."""


def install_npu(
    accelerator: Accelerator,
    count: int,
    get_allocator: Callable[[int], CachingAllocator],
    *,
    visible_devices: str | None,
    unsupported_error: Unsupported,
    make_pinned_copy: Callable[[torch.Tensor], torch.Tensor],
    assume: Callable[[Text], object],
) -> VirtualNpu:
    """Install the facade, with the arguments of ``cuda.facade.install``. Returns the state, with its ``undo()``.

    ``visible_devices`` is the value of ASCEND_RT_VISIBLE_DEVICES; ``assume`` records that CANN is assumed to be set
    up. The backend must have been renamed to ``npu`` before (``private.name_accelerator``).
    """
    npu = VirtualNpu(accelerator, count, get_allocator, unsupported_error)
    patches = npu.patches
    hide_real_devices(patches)
    _disable_cuda(npu)
    set_visible_devices(npu, visible_devices)
    module = npu.api = api.make_module()
    replaced: list[tuple[Any, Any]] = []
    for part in PARTS:
        for owner, name, value in part.replacements(npu):
            if any(owner is cuda for cuda in _CUDA_MODULES):
                if name not in _CUDA_ONLY_NAMES:
                    setattr(module, name, value)
            elif owner is torch or (owner is torch._C and not name.startswith("_cuda_")):
                original = getattr(owner, name, None)
                if callable(original) and original is not value:
                    replaced.append((original, value))
                patches.set(owner, name, value)
    patches.replace_everywhere(replaced)
    api.fill_npu_module(module, npu)
    patches.on_undo(_register_module(module))
    tensors.install(npu, make_pinned_copy)
    _extend_classes(npu)
    operators.define_operators()
    patches.on_undo(attention.install())
    patches.on_undo(package.install(module, unsupported_error, assume))
    patches.set_item(os.environ, "DS_ACCELERATOR", "npu")
    if "ASCEND_HOME_PATH" not in os.environ:
        assume(translated("CANN's set_env.sh has run on the machine"))
        patches.set_item(os.environ, "ASCEND_HOME_PATH", _CANN_PATH)
    return npu


def _register_module(module: Any) -> Callable[[], None]:
    """Register the module as ``torch.npu``; returns the undo."""
    register: Any = torch._register_device_module
    register("npu", module)

    def unregister_module() -> None:
        del vars(torch)["npu"]
        del sys.modules["torch.npu"]

    return unregister_module


def _disable_cuda(npu: VirtualNpu) -> None:
    """Make a CUDA build of torch behave like one without CUDA, as found on an Ascend machine."""

    def raise_no_cuda() -> None:
        raise AssertionError(_NO_CUDA_MESSAGE)

    for name, value in {
        "_is_compiled": lambda: False,
        "is_available": lambda: False,
        "device_count": lambda: 0,
        "_lazy_init": raise_no_cuda,
        "_lazy_call": lambda function, **kwargs: None,
    }.items():
        npu.patches.set(torch.cuda, name, value)
    npu.patches.set(torch.version, "cuda", None)


def _extend_classes(npu: VirtualNpu) -> None:
    """Add torch_npu's members of tensors, modules and storages (``generate_methods_for_privateuse1_backend``)."""
    patches = npu.patches

    def module_npu(self: Any, device: Any = None) -> Any:
        return self._apply(lambda tensor: tensor.npu(device))

    patches.set(torch.Tensor, "is_npu", property(lambda self: self.device.type == "npu"))
    patches.set(torch.nn.Module, "npu", module_npu)
    patches.set(torch.UntypedStorage, "is_npu", property(lambda self: self.device.type == "npu"))
    patches.set(torch.storage.TypedStorage, "is_npu", property(lambda self: self.device.type == "npu"))
