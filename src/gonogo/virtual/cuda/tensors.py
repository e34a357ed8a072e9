"""Tensors on their way to a CUDA device, for which C++ would call the driver before any dispatch mode.

Covers plain tensors (a :class:`VirtualTensor` has its own methods): ``Tensor.to``, ``.cuda``, ``.type``,
``.pin_memory``; and functions that build a tensor from Python data: ``torch.tensor``, ``as_tensor``, ``asarray``,
``Tensor.new_tensor``, ``torch.cuda.FloatTensor``. They build it on the CPU, then move it by ``Tensor.to``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual import private
from gonogo.virtual.cuda.state import VirtualCuda
from gonogo.virtual.patching.patches import Patches

PinFunction = Callable[[torch.Tensor], torch.Tensor]

_LEGACY_TYPES = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")


def install(cuda: VirtualCuda, pin: PinFunction | None = None) -> None:
    """Replace the methods and functions until the facade is removed. ``pin`` makes a plain tensor's pinned copy."""
    _replace_device_moves(cuda)
    _replace_pinning(cuda.patches, pin)
    _replace_tensor_constructors(cuda)
    _replace_legacy_types(cuda)


def _replace_device_moves(cuda: VirtualCuda) -> None:
    real_to, real_type = torch.Tensor.to, torch.Tensor.type

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if args:
            first = args[0]
            if isinstance(first, torch.Tensor):  # C++ would read the underlying device
                return to(self, first.device, first.dtype, *args[1:], **kwargs)
            args = (cuda.with_device_index(first), *args[1:])
        if kwargs.get("device") is not None:
            kwargs["device"] = cuda.with_device_index(kwargs["device"])
        return real_to(self, *args, **kwargs)

    def move_to_accelerator(
        self: torch.Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format
    ) -> Any:
        where = torch.device(cuda.kind, cuda.device_index(device))
        return self.to(where, non_blocking=non_blocking, memory_format=memory_format)

    def type_(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        name = (
            dtype if isinstance(dtype, str) else f"{getattr(dtype, '__module__', '')}.{getattr(dtype, '__name__', '')}"
        )
        if dtype is not None and name.startswith(f"torch.{cuda.kind}."):
            return self.to(cuda.kind, private.dtype_of_legacy_type(name), non_blocking=non_blocking)
        found = real_type(self, dtype, non_blocking, **kwargs)
        if isinstance(found, str) and found.startswith("torch.meta.") and (kind := self.device.type) != "meta":
            return found.replace("meta.", "" if kind == "cpu" else f"{kind}.", 1)  # a subclass around virtual tensors
        return found

    cuda.patches.set(torch.Tensor, "to", to)
    cuda.patches.set(torch.Tensor, cuda.kind, move_to_accelerator)
    cuda.patches.set(torch.Tensor, "type", type_)


def _replace_pinning(patches: Patches, pin: PinFunction | None) -> None:
    def is_pinned(self: torch.Tensor, device: Any = None) -> bool:
        base = self if self._base is None else self._base
        return bool(getattr(base, "_is_pinned_copy", False))

    def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        if self.layout is not torch.strided or self.device.type != "cpu":
            raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
        if is_pinned(self):
            return self
        if pin is not None:
            return pin(self)
        copy = self.detach().clone()
        copy._is_pinned_copy = True  # type: ignore[attr-defined]
        return copy

    patches.set(torch.Tensor, "pin_memory", pin_memory)
    patches.set(torch.Tensor, "is_pinned", is_pinned)


def _replace_tensor_constructors(cuda: VirtualCuda) -> None:
    real_tensor, real_as_tensor, real_asarray = torch.tensor, torch.as_tensor, torch.asarray
    real_new_tensor = torch.Tensor.new_tensor
    _freeze_device_constructors()

    def cuda_target(device: Any) -> torch.device | None:
        """The CUDA device for the new tensor, explicit or by default; None for any other device."""
        if device is None:
            device = _default_device()
        where = cuda.with_device_index(device)
        return where if isinstance(where, torch.device) and where.type == cuda.kind else None

    def tensor(
        data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
    ) -> Any:
        if isinstance(data, torch.Tensor):
            made = data.detach().clone().to(device=data.device if device is None else device, dtype=dtype or data.dtype)
            return made.requires_grad_(requires_grad)
        data, dtype = _tensors_to_numbers(data, dtype)
        where = cuda_target(device)
        if where is None and not pin_memory:
            return real_tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)
        made = real_tensor(data, dtype=dtype, device="cpu")
        made = made.pin_memory() if where is None else made.to(where)
        return made.requires_grad_(requires_grad)

    def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
        if isinstance(data, torch.Tensor):
            return data.to(device=data.device if device is None else device, dtype=dtype or data.dtype)
        data, dtype = _tensors_to_numbers(data, dtype)
        where = cuda_target(device)
        if where is None:
            return real_as_tensor(data, dtype=dtype, device=device)
        return real_as_tensor(data, dtype=dtype, device="cpu").to(where)

    def asarray(
        obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None, requires_grad: bool = False
    ) -> Any:
        where = cuda_target(device)
        if isinstance(obj, torch.Tensor):
            made = as_tensor(obj, dtype, device)
            made = made.clone() if copy and made is obj else made
            return made.requires_grad_(requires_grad) if requires_grad else made
        if where is None:
            return real_asarray(obj, dtype=dtype, device=device, copy=copy, requires_grad=requires_grad)
        return real_asarray(obj, dtype=dtype, device="cpu").to(where).requires_grad_(requires_grad)

    def new_tensor(self: torch.Tensor, data: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is None and self.device.type != cuda.kind:
            return real_new_tensor(self, data, **kwargs)
        kwargs["device"] = kwargs.get("device") or self.device
        kwargs["dtype"] = kwargs.get("dtype") or self.dtype
        return tensor(data, **{k: v for k, v in kwargs.items() if k != "layout"})

    for name, function in (("tensor", tensor), ("as_tensor", as_tensor), ("asarray", asarray)):
        function.__module__ = "torch"
        cuda.patches.set(torch, name, function)
    cuda.patches.replace_everywhere([(real_tensor, tensor), (real_as_tensor, as_tensor), (real_asarray, asarray)])
    cuda.patches.set(torch.Tensor, "new_tensor", new_tensor)


def _default_device() -> torch.device | None:
    """The device of the innermost ``with torch.device(…)``, else of ``set_default_device``; None without either."""
    if not torch._C._len_torch_function_stack():
        return None
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    stack = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return next((mode.device for mode in reversed(stack) if isinstance(mode, DeviceContext)), None)


def _tensors_to_numbers(data: Any, dtype: Any) -> tuple[Any, Any]:
    """Convert a list of tensors to numbers with their dtype: C++ would read memory that doesn't exist."""
    if not isinstance(data, list | tuple) or not data:
        return data, dtype
    if any(isinstance(item, torch.Tensor) for item in data):
        dtype = dtype or next(item.dtype for item in data if isinstance(item, torch.Tensor))
        return [item.tolist() if isinstance(item, torch.Tensor) else item for item in data], dtype
    if isinstance(data[0], list | tuple) and data[0] and isinstance(data[0][0], torch.Tensor):
        dtype = dtype or data[0][0].dtype
        return [_tensors_to_numbers(item, dtype)[0] for item in data], dtype
    return data, dtype


def _freeze_device_constructors() -> None:
    """Have torch build its set of constructors for ``with torch.device(…)`` before any of them is replaced."""
    from torch.utils._device import _device_constructors

    _device_constructors()


def _replace_legacy_types(cuda: VirtualCuda) -> None:
    for name in _LEGACY_TYPES:
        dtype = private.dtype_of_legacy_type(f"torch.{cuda.kind}.{name}Tensor")
        cuda.patches.set(cuda.api, f"{name}Tensor", _legacy_type(cuda, f"{name}Tensor", dtype))

    real = torch.set_default_tensor_type

    def set_default_tensor_type(t: Any) -> None:
        name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
        if name.startswith(f"torch.{cuda.kind}."):
            torch.set_default_dtype(private.dtype_of_legacy_type(name))
            torch.set_default_device(cuda.kind)
        else:
            real(t)

    cuda.patches.set(torch, "set_default_tensor_type", set_default_tensor_type)


def _legacy_type(cuda: VirtualCuda, name: str, dtype: torch.dtype) -> type:
    class LegacyTypeMeta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, torch.Tensor) and instance.device.type == cuda.kind and instance.dtype == dtype

        def __call__(cls, *args: Any, device: Any = None) -> Any:
            where = torch.device(cuda.kind, cuda.device_index(device))
            if not args or all(isinstance(size, int) for size in args) or isinstance(args[0], torch.Size):
                shape = args[0] if args and isinstance(args[0], torch.Size) else args or (0,)
                return torch.empty(shape, dtype=dtype, device=where)
            return torch.tensor(args[0], dtype=dtype, device=where)

    return LegacyTypeMeta(name, (), {"__module__": f"torch.{cuda.kind}", "dtype": dtype})
