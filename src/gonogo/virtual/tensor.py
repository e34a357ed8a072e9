"""The virtual tensor: shape, strides, dtype and a device that does not exist, without memory.

A :class:`VirtualTensor` is a wrapper subclass whose C++ side lives on an indexed ``meta`` device, while Python's
``.device`` is ``cuda:N`` or ``cpu``. C++ never sees CUDA, so no guard, stream or driver is used, and torch behaves
the same with or without CUDA. The index also keeps devices apart in C++: a factory that C++ itself calls with
``meta:3`` belongs on ``cuda:3``, whereas a program's own ``meta`` has no index.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.utils._pytree import tree_flatten

from gonogo.virtual import private
from gonogo.virtual.memory.shared_memory import SharedMemory

if TYPE_CHECKING:
    from gonogo.virtual.memory.tracking import Cell

CPU = torch.device("cpu")
META = torch.device("meta")
_CPU_META_INDEX = 100
"""The index that represents the CPU in C++; no machine has that many accelerators."""


class Spec:
    """Shape, strides, dtype and device: what an operator's results depend on.

    Only created by :meth:`of`, which interns instances, so that comparing and hashing use identity.
    """

    __slots__ = ("device", "dtype", "shape", "strides")
    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    _known: ClassVar[dict[Any, Spec]] = {}

    @classmethod
    def of(cls, shape: torch.Size, strides: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Spec:
        """The interned instance with these values."""
        key = (shape, strides, dtype, device)
        spec = cls._known.get(key)
        if spec is None:
            spec = cls._known[key] = cls()
            spec.shape, spec.strides, spec.dtype, spec.device = key
        return spec


@cache
def meta_device(device: torch.device) -> torch.device:
    """The ``meta:N`` device that represents a virtual device in C++."""
    return torch.device("meta", _CPU_META_INDEX if device.type == "cpu" else device.index or 0)


class MetaKernelState:
    """Flag for a running meta kernel, to which a virtual tensor's device is ``meta`` in Python as well."""

    running = False


def _has_no_own_operators(kind: type) -> bool:
    """Whether a tensor's class is the virtual one, or has no operators of its own."""
    return issubclass(kind, VirtualTensor) or kind is torch.Tensor or kind is torch.nn.Parameter


class VirtualTensor(torch.Tensor):
    """A tensor on a virtual device. Only created by :func:`new_virtual` and :func:`make_alias`."""

    __slots__ = ("_device", "_spec", "cell")
    _device: torch.device
    _spec: Spec | None
    cell: Cell

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    accelerator_type = "cuda"
    """Device type of the accelerators; set once per process."""
    virtual_mode: Any = None
    """The dispatch mode that serves operators on virtual tensors; set once per process."""
    accelerator_index: Any = None
    """Function that returns the current accelerator's index."""
    check_ordinal: Any = staticmethod(lambda index: None)
    """Raises CUDA's error for an invalid device index."""

    def __new__(cls, data: Any, requires_grad: bool = True, **attributes: Any) -> Any:
        """Create a parameter: supports ``type(parameter)(data, requires_grad)``, with which accelerate moves
        weights."""
        return torch.nn.Parameter(data, requires_grad)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Reached where the mode is not active (another thread, a data pipeline): enter it.

        A class that wraps virtual tensors may call it too, with its own class among ``types`` and none of its objects
        among the operands.
        """
        if not all(map(_has_no_own_operators, types)) and not all(
            _has_no_own_operators(type(one)) for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)
        ):
            return NotImplemented
        with cls.virtual_mode:
            return func(*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        """Raise the error for a missing attribute with the name of the real class."""
        kind = "Parameter" if self.__dict__.get("_is_param") else "Tensor"
        raise AttributeError(f"'{kind}' object has no attribute '{name}'", name=name, obj=self)

    @property
    def spec(self) -> Spec:
        """Its shape, strides, dtype and device."""
        spec = self._spec
        if spec is None:
            spec = self._spec = Spec.of(self.shape, self.stride(), self.dtype, self._device)
        return spec

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The virtual device; ``meta`` while a meta kernel runs."""
        return META if MetaKernelState.running else self._device

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        """Whether the virtual device is a CUDA one."""
        return self._device.type == "cuda"

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        """Whether the virtual device is the CPU."""
        return self._device.type == "cpu"

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        """False to the program; True to a meta kernel."""
        return MetaKernelState.running

    @property
    def data(self) -> torch.Tensor:
        """Like a real tensor's: shares storage, detached from autograd."""
        return private.get_data(self)

    @data.setter
    def data(self, new: torch.Tensor) -> None:
        virtual: VirtualTensor = new if isinstance(new, VirtualTensor) else VirtualTensor.virtual_mode.virtualise(new)
        as_told = virtual if virtual.is_inference() == self.is_inference() else _copy_in_other_inference_mode(virtual)
        private.set_data(self, as_told)
        self._device, self.cell, self._spec = virtual._device, virtual.cell, None

    def get_device(self) -> int:
        """Index of the accelerator, or -1 on the CPU."""
        return -1 if self._device.type == "cpu" else self._device.index or 0

    def data_ptr(self) -> int:
        """The storage's address in the replayed allocator, plus the offset. There is no memory behind it."""
        return self.cell.address + int(self.storage_offset()) * self.element_size() if self.numel() else 0

    def untyped_storage(self) -> torch.UntypedStorage:
        """The storage, which reports its virtual address and device."""
        storage = super().untyped_storage()
        storage.virtual = (self.cell, self._device)  # type: ignore[attr-defined]
        return storage

    def type(self, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """Like ``Tensor.type``: the legacy type's name, or a conversion."""
        if dtype is None:
            plain = private.legacy_type_name(self.dtype)
            return plain if self._device.type == "cpu" else plain.replace("torch.", f"torch.{self._device.type}.")
        if isinstance(dtype, str) or not isinstance(dtype, torch.dtype):
            name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
            wanted = private.dtype_of_legacy_type(name)
            device = CPU if f".{self.accelerator_type}." not in name else None
            return self.to(device=device or self._accelerator_device(), dtype=wanted, non_blocking=non_blocking)
        return self.to(dtype=dtype, non_blocking=non_blocking)

    def _accelerator_device(self) -> torch.device:
        return torch.device(self.accelerator_type, self.accelerator_index())

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Like ``Tensor.to``. A move to the current device is dropped, since C++ would compare with the meta
        device."""
        if args and isinstance(args[0], torch.Tensor):
            other, *rest = args
            return self.to(other.device, other.dtype, *rest, **kwargs)
        if args and type(args[0]) is int:  # an accelerator index, which a torch without accelerators rejects
            args = (resolve_device(args[0]), *args[1:])
        elif type(kwargs.get("device")) is int:
            kwargs["device"] = resolve_device(kwargs["device"])
        memory_format = kwargs.pop("memory_format", None)
        copy = kwargs.pop("copy", False)
        if len(args) > 3 or (len(args) > 2 and isinstance(args[0], torch.dtype)):
            *args, copy = args  # type: ignore[assignment]
        device, dtype, non_blocking, _ = private.parse_to(*args, **kwargs)
        if device is not None:
            device = resolve_device(device)
        stays = device in (None, self._device) and dtype in (None, self.dtype)
        laid = memory_format in (None, torch.preserve_format) or self.is_contiguous(memory_format=memory_format)
        if stays and laid and not copy:
            return self
        return private.to_copy(
            self, device or self._device, dtype or self.dtype, non_blocking, memory_format or torch.preserve_format
        )

    def cpu(self, memory_format: torch.memory_format = torch.preserve_format) -> Any:
        """Like ``Tensor.cpu``."""
        return self.to("cpu", memory_format=memory_format)

    def cuda(self, device: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format) -> Any:
        """Like ``Tensor.cuda``."""
        where = torch.device("cuda", device) if isinstance(device, int) else device or "cuda"
        return self.to(where, non_blocking=non_blocking, memory_format=memory_format)

    def new(self, *sizes: Any, device: Any = None) -> Any:
        """The legacy constructor: an uninitialized tensor of these sizes, or one with this data, of the same
        dtype."""
        if len(sizes) == 1 and not isinstance(sizes[0], int | torch.Size):
            data = sizes[0]
            return data.detach() if isinstance(data, torch.Tensor) else self.new_tensor(data, device=device)
        size = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], torch.Size) else sizes or (0,)
        return self.new_empty(size, device=device)

    def new_tensor(self, data: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        """Like ``Tensor.new_tensor``; in C++ the data would be lost, since the device is meta."""
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or self._device, **kwargs)

    def pin_memory(self, device: Any = None) -> Any:
        """Like ``Tensor.pin_memory``: a pinned copy, or the tensor itself if it is pinned already."""
        if self._device.type != "cpu":
            raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
        return self if self.cell.pinned else VirtualTensor.virtual_mode.pinned_copy(self)

    def is_pinned(self, device: Any = None) -> bool:
        """True if the storage was pinned."""
        return self.cell.pinned

    def is_shared(self) -> bool:
        """True on an accelerator, and for a host tensor that the program has moved to shared memory."""
        return self._device.type != "cpu" or self.cell in SharedMemory.held

    def share_memory_(self) -> Any:
        """Count the tensor's storage as shared memory."""
        if self._device.type == "cpu":
            SharedMemory.add(self.cell)
        return self

    def record_stream(self, stream: Any) -> None:
        """Do nothing: streams don't reorder a rehearsal."""

    def numpy(self, *, force: bool = False) -> Any:
        """The known values, or zeros with an assumption recorded if they are unknown."""
        if self._device.type != "cpu" and not force:
            raise TypeError(
                f"can't convert {self._device} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        if self.requires_grad and not force and torch.is_grad_enabled():
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        return VirtualTensor.virtual_mode.values_or_assumed(self, for_write=True).numpy()

    def __array__(self, dtype: Any = None) -> Any:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def tolist(self) -> Any:
        """The known values, or assumed ones if they are unknown."""
        return VirtualTensor.virtual_mode.values_or_assumed(self).tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        known = None if MetaKernelState.running else VirtualTensor.virtual_mode.known_values(self)
        if known is not None and known.numel() <= 1000:
            text = repr(known)
            return text if self._device.type == "cpu" else f"{text[:-1]}, device='{self._device}')"
        return f"tensor(..., device='{self._device}', size={tuple(self.shape)}, dtype={self.dtype})"

    def __format__(self, spec: str) -> str:
        """Format a scalar as a number, which torch only does for the exact class ``torch.Tensor``."""
        kind = "Parameter" if isinstance(self, torch.nn.Parameter) else "Tensor"
        if self.dim() == 0 and kind == "Tensor":
            return self.detach().item().__format__(spec)
        if spec:
            raise TypeError(f"unsupported format string passed to {kind}.__format__")
        return str(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                "moment."
            )
        import copy

        with torch.no_grad():
            new: Any = self.clone()
        memo[id(self)] = new
        if isinstance(self, torch.nn.Parameter):  # like torch, without attributes and gradient
            new._is_param = True
            new.requires_grad_(self.requires_grad)
            VirtualTensor.virtual_mode.memory.recategorise(new.cell, "parameters")
            return new
        new.__dict__.update(copy.deepcopy(self.__dict__, memo))
        new.requires_grad_(self.requires_grad)
        if self.grad is not None:
            new.grad = copy.deepcopy(self.grad, memo)
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the metadata; unpickled, the values are unknown unless they were known and few."""
        known = VirtualTensor.virtual_mode.known_values(self)
        numbers = known.contiguous().clone().numpy().tobytes() if private.is_small_numeric(known) else None
        state = (tuple(self.shape), self.stride(), self.dtype, str(self._device), self.requires_grad, numbers)
        return rebuild_virtual_tensor, (*state, isinstance(self, torch.nn.Parameter))


# Messages of Python and libraries contain the class name ("Object of type Tensor is not JSON serializable").
VirtualTensor.__name__ = "Tensor"


def resolve_device(device_spec: Any) -> torch.device:
    """A complete device: ``cuda`` without an index is the current one, an integer is an accelerator's index."""
    kind = VirtualTensor.accelerator_type
    device: torch.device = (
        torch.device(kind, device_spec) if isinstance(device_spec, int) else torch.device(device_spec)
    )
    if device.type == "meta" and device.index is not None:  # a virtual device as seen by C++
        if device.index == _CPU_META_INDEX:
            return CPU
        return torch.device(VirtualTensor.accelerator_type, device.index)
    if device.type == VirtualTensor.accelerator_type:
        if device.index is None:
            return torch.device(device.type, VirtualTensor.accelerator_index())
        VirtualTensor.check_ordinal(device.index)
        return device
    if device.type == "cpu":
        return CPU
    if device.type != "meta":
        private.raise_unknown_device(device)
    return device


def new_virtual(
    shape: Any, strides: Any, dtype: torch.dtype, device: torch.device, requires_grad: bool = False
) -> VirtualTensor:
    """A virtual tensor with a new storage; the caller has to set its cell."""
    tensor: VirtualTensor = private.make_wrapper_subclass(
        VirtualTensor, shape, strides, dtype, meta_device(device), requires_grad
    )
    tensor._device = device
    tensor._spec = None
    return tensor


def make_alias(view: torch.Tensor, base: VirtualTensor, spec: Spec | None = None) -> VirtualTensor:
    """Wrap ``view``, which shares ``base``'s storage, as a virtual tensor on the same device and cell."""
    tensor: VirtualTensor = private.make_alias(VirtualTensor, view)
    tensor._device = base._device
    tensor._spec = spec
    tensor.cell = base.cell
    return tensor


def _copy_in_other_inference_mode(tensor: VirtualTensor) -> VirtualTensor:
    """A copy with the same shape, strides and offset and the opposite inference-mode flag.

    C++ lets ``.data`` switch between the two on real devices, but not on ``meta``. Unlike a real tensor, which
    becomes an inference tensor too, a virtual one still accepts gradients.
    """
    length = torch.Tensor.untyped_storage(tensor).nbytes() // max(tensor.element_size(), 1)
    with torch.inference_mode(not tensor.is_inference()), private.DisableTorchDispatch():
        whole = new_virtual((length,), (1,), tensor.dtype, tensor._device)
        part = private.as_strided(whole, tensor.shape, tensor.stride(), tensor.storage_offset())
        whole.cell = tensor.cell
        return make_alias(part, whole)


def rebuild_virtual_tensor(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
    requires_grad: bool,
    data: bytes | None,
    is_parameter: bool,
) -> torch.Tensor:
    """Unpickle a virtual tensor."""
    if data:  # empty tensors have no data
        tensor = torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape).to(device)
    else:
        tensor = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    return torch.nn.Parameter(tensor, requires_grad) if is_parameter else tensor.requires_grad_(requires_grad)


def local_tensors(value: Any) -> tuple[VirtualTensor, ...]:
    """The virtual tensor that the value is, or that a DTensor has locally; empty for anything else."""
    if isinstance(value, VirtualTensor):
        return (value,)
    local = getattr(value, "_local_tensor", None) if isinstance(value, torch.Tensor) else None
    return (local,) if isinstance(local, VirtualTensor) else ()
