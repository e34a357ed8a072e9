"""Every private interface of torch's and safetensors' serialization that gonogo uses, in one place.

Tested with torch 2.13.0 and safetensors 0.8.0. ``tests/virtual/test_weights.py`` calls
:func:`missing_interfaces`, which names those that have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

utils: Any = torch._utils
"""The module whose ``_rebuild_*`` functions create tensors from storages."""


def forget_safe_globals() -> None:
    """Clear the cache in which ``torch.load(weights_only=True)`` keeps its allowed functions."""
    import torch._weights_only_unpickler as unpickler

    clear = getattr(getattr(unpickler, "_get_allowed_globals", None), "cache_clear", None)
    if clear is not None:
        clear()


def check_save_arguments(f: Any, pickle_module: Any) -> None:
    """Raise the errors of ``torch.save`` for a target that isn't writable, or an outdated dill."""
    private: Any = torch.serialization
    private._check_dill_version(pickle_module)
    private._check_save_filelike(f)


def check_cuda_location(location: str) -> None:
    """Raise the error of ``torch.load`` for a CUDA device that doesn't exist."""
    private: Any = torch.serialization
    private.validate_cuda_device(location)


def storage_type_of(dtype: torch.dtype) -> Any:
    """The legacy storage class (``torch.FloatStorage``) that represents a dtype in an archive; None for newer
    dtypes."""
    new: Any = getattr(torch.storage, "_new_dtypes", set)()
    if dtype in new:
        return None
    name = torch.storage._dtype_to_storage_type_map().get(dtype)
    return getattr(torch, name) if name else None


def rebuild_arguments(
    dtype: torch.dtype, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: bool, hooks: Any
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The reduce value with which a tensor is pickled."""
    arguments = (storage, offset, tuple(size), tuple(stride), requires_grad, hooks)
    if storage_type_of(dtype) is None:
        return utils._rebuild_tensor_v3, (*arguments, dtype)
    return utils._rebuild_tensor_v2, arguments


def rebuild_parameter(
    data: Any, requires_grad: bool, hooks: Any, state: Any
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The reduce value with which a parameter is pickled; ``state`` are the attributes that the program has set on
    it."""
    if state:
        return utils._rebuild_parameter_with_state, (data, requires_grad, hooks, state)
    return utils._rebuild_parameter, (data, requires_grad, hooks)


def rebuild_with_state(
    function: Callable[..., Any], arguments: tuple[Any, ...], state: Any
) -> tuple[Any, tuple[Any, ...]]:
    """The reduce value with which a tensor with attributes is pickled."""
    tensor_module: Any = torch._tensor
    return tensor_module._rebuild_from_type_v2, (function, torch.Tensor, arguments, state)


def missing_interfaces() -> list[str]:
    """The names of private interfaces that are missing; empty if there are none."""
    import safetensors.torch

    wanted: list[tuple[Any, str]] = [
        (utils, "_rebuild_tensor"), (utils, "_rebuild_tensor_v2"), (utils, "_rebuild_tensor_v3"),
        (utils, "_rebuild_parameter"), (utils, "_rebuild_parameter_with_state"),
        (torch._tensor, "_rebuild_from_type_v2"),
        (torch.serialization, "_check_dill_version"), (torch.serialization, "_check_save_filelike"),
        (torch.serialization, "validate_cuda_device"), (torch.storage, "_dtype_to_storage_type_map"),
        (safetensors.torch, "serialize_file"), (safetensors.torch, "serialize"),
    ]  # fmt: skip
    moved = [f"{getattr(owner, '__name__', owner)}.{name}" for owner, name in wanted if not hasattr(owner, name)]
    if not hasattr(safetensors.torch, "_to_ndarray") and not hasattr(safetensors.torch, "_tobytes"):
        moved.append("safetensors.torch._to_ndarray or _tobytes")
    return moved
