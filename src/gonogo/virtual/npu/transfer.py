"""``import torch_npu.contrib.transfer_to_npu``: runs a program written for CUDA on NPUs.

Replaces torch_npu's file of that name (2.6.0 to 2.13.0): ``torch.cuda`` behaves as ``torch.npu``, ``.cuda()`` as
``.npu()``, a list of functions accept ``cuda`` for ``npu`` in their arguments, and nccl is read as hccl.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._device import DeviceContext

from gonogo.virtual.npu.names import split_words
from gonogo.virtual.tensor import VirtualTensor

_FACTORY_FUNCTIONS = split_words("""
logspace randint hann_window rand full_like ones_like rand_like randperm arange frombuffer normal empty_strided
empty_like scalar_tensor tril_indices bartlett_window ones sparse_coo_tensor randn kaiser_window tensor triu_indices
as_tensor zeros randint_like full eye empty blackman_window zeros_like range sparse_csr_tensor randn_like from_file
linspace hamming_window load set_default_device get_device_module sparse_compressed_tensor
""")
_TENSOR_METHODS = split_words("new_empty new_empty_strided new_full new_ones new_tensor new_zeros to pin_memory")
_MODULE_METHODS = ("to", "to_empty")
_CUDA_FUNCTIONS = split_words("""
get_device_properties get_device_name get_device_capability set_device synchronize mem_get_info memory_stats
memory_summary memory_allocated max_memory_allocated reset_max_memory_allocated memory_reserved max_memory_reserved
reset_max_memory_cached reset_peak_memory_stats default_stream can_device_access_peer current_stream utilization
set_per_process_memory_fraction caching_allocator_alloc get_rng_state set_rng_state
""")
_DEVICE_ARGUMENTS = ("device", "device_type", "map_location", "device_id")
_done = False


def transfer(npu: ModuleType) -> None:
    """Redirect calls of ``torch.cuda`` to the NPU from now on, as torch_npu's ``transfer_to_npu`` does."""
    global _done
    if _done:
        return
    _done = True
    _replace_cuda(npu)
    _patch_methods_for_npu(torch, _FACTORY_FUNCTIONS)
    _patch_methods_for_npu(torch.nn.Module, _MODULE_METHODS)
    classes: tuple[Any, ...] = (torch.Tensor, VirtualTensor)
    module_class: Any = torch.nn.Module
    for tensors in classes:
        _patch_methods_for_npu(
            tensors, [name for name in _TENSOR_METHODS if name in vars(tensors) or tensors is torch.Tensor]
        )
        tensors.cuda = classes[0].npu
        tensors.is_cuda = classes[0].is_npu
    module_class.cuda = module_class.npu
    with_devices: tuple[Any, ...] = (DeviceContext, torch.amp.autocast_mode.autocast)
    for owner in with_devices:
        owner.__init__ = _with_npu_devices(owner.__init__)
    _patch_methods_for_npu(
        torch, ["get_autocast_dtype", "set_autocast_dtype", "is_autocast_enabled", "set_autocast_enabled"]
    )
    torch.Generator = _generator_class(torch.Generator)  # type: ignore[misc]
    _replace_distributed()
    torch.jit.script = lambda function, *args, **kwargs: function  # type: ignore[assignment]


def _replace_cuda(npu: ModuleType) -> None:
    for name in npu.__all__:
        setattr(torch.cuda, name, getattr(npu, name))
    _patch_methods_for_npu(torch.cuda, _CUDA_FUNCTIONS)
    torch.cuda.default_generators = npu.default_generators
    amp: Any = torch.cuda.amp
    amp.autocast, amp.GradScaler = npu.amp.autocast, npu.amp.GradScaler
    for name in ("get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all", "manual_seed_all"):
        setattr(torch.cuda.random, name, getattr(torch.cuda, name))


def _replace_distributed() -> None:
    modules: tuple[Any, ...] = (dist, dist.distributed_c10d)
    for module in modules:
        module.init_process_group = _with_npu_devices(_with_hccl_backend(module.init_process_group))
        module.new_group = _with_hccl_backend(module.new_group)
        module.is_nccl_available = lambda: True


def _patch_methods_for_npu(owner: Any, names: Any) -> None:
    for name in names:
        function = getattr(owner, name, None)
        if function is not None:
            setattr(owner, name, _with_npu_devices(function))


def _generator_class(real: Any) -> Any:
    class GeneratorMeta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

        def __call__(cls, device: Any = "cpu") -> Any:
            return real(_cuda_to_npu(device))

    return GeneratorMeta("Generator", (), {"__doc__": "``torch.Generator``, of NPUs where CUDA is named."})


def _with_npu_devices(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function so that ``cuda`` in its arguments is read as ``npu``."""

    @functools.wraps(function)
    def call_with_npu_devices(*args: Any, **kwargs: Any) -> Any:
        args = tuple(_cuda_to_npu(value) for value in args)
        for name in _DEVICE_ARGUMENTS:
            if name in kwargs:
                value = kwargs[name]
                kwargs[name] = f"npu:{value}" if type(value) is int else _cuda_to_npu(value)
        return function(*args, **kwargs)

    return call_with_npu_devices


def _with_hccl_backend(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call_with_hccl_backend(*args: Any, **kwargs: Any) -> Any:
        args = tuple(value.replace("nccl", "hccl") if isinstance(value, str) else value for value in args)
        if isinstance(kwargs.get("backend"), str):
            kwargs["backend"] = kwargs["backend"].replace("nccl", "hccl").replace("cuda", "npu")
        return function(*args, **kwargs)

    return call_with_hccl_backend


def _cuda_to_npu(value: Any) -> Any:
    """A device argument, or a ``device_map``, with ``npu`` in place of ``cuda``; anything else as it is."""
    if isinstance(value, str):
        return value.replace("cuda", "npu")
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("npu") if value.index is None else torch.device("npu", value.index)
    if type(value) is dict:
        return {_cuda_to_npu(key): _cuda_to_npu(item) for key, item in value.items()}
    return value
