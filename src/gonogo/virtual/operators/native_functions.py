"""Replacements for torch functions whose C++ code would read memory or call a driver."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from gonogo.finding import translated
from gonogo.virtual.mode import HANDLERS, VirtualMode
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import CPU, Spec, VirtualTensor
from gonogo.virtual.unsupported import UnsupportedOperator


def _flatten_weight(mode: VirtualMode, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """``RNN.flatten_parameters``, which with cuDNN would ask the driver how weights are laid out.

    It copies a network's weights into one buffer and makes them views of it. Here the buffer is allocated and freed,
    and the weights stay where they are: the same memory, at that moment and later. Only cuDNN's padding is ignored.
    """
    weights = args[0]
    count = sum(weight.numel() for weight in weights)
    spec = Spec.of(torch.Size((count,)), (1,), weights[0].dtype, weights[0].device)
    return mode._new_tensor(spec, count * weights[0].element_size())


def _pack_padded_sequence(mode: VirtualMode, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Read the lengths, which C++ takes directly from memory (aten/src/ATen/native/PackedSequence.cpp).

    Real lengths on the CPU work as usual; for virtual ones the operator can't be rehearsed.
    """
    data, lengths = args[:2]
    if not isinstance(data, VirtualTensor) and not isinstance(lengths, VirtualTensor):
        return func(*args, **kwargs)
    if lengths.device != CPU:
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, but got "
            f"{lengths.dim()}D {lengths.device} {lengths.type().rpartition('.')[2].removesuffix('Tensor')} tensor"
        )
    raise UnsupportedOperator(
        str(func), translated("pack_padded_sequence reads the lengths from memory, which virtual tensors do not have")
    )


HANDLERS[torch.ops.aten._pack_padded_sequence.default] = _pack_padded_sequence
HANDLERS[torch.ops.aten._cudnn_rnn_flatten_weight.default] = _flatten_weight


def install_dropout() -> Callable[[], None]:
    """Run dropout as accelerators do: one fused kernel that saves a boolean mask (one bit per element on Ascend).

    ATen checks ``is_cuda``, which C++ answers with False for a virtual tensor, and then saves a mask of the input's
    dtype.

    Redirects dropout of accelerator tensors to ``native_dropout``; returns the undo.
    """
    patches = Patches()
    functions: Any = torch._VF
    original = functions.dropout

    def dropout(input: Any, p: float, train: bool) -> Any:
        fused = isinstance(input, VirtualTensor) and input.device.type != "cpu" and train and 0 < p < 1
        if not fused or not input.numel():
            return original(input, p, train)
        if input.device.type == "npu":
            return torch.ops.npu._npu_dropout(input, p)[0]
        return torch.native_dropout(input, p, True)[0]

    patches.set(functions, "dropout", dropout)
    patches.set(torch, "dropout", dropout)
    return patches.undo


def install_storages() -> Callable[[], None]:
    """Give storages of virtual tensors an address of their own, and the virtual device.

    Libraries detect shared tensors by ``untyped_storage().data_ptr()``; in C++ all virtual storages have address 0 on
    ``meta``.

    Patches ``torch.UntypedStorage``; returns the undo.
    """
    patches = Patches()
    real_pointer: Any = torch.UntypedStorage.data_ptr
    real_device: Any = torch.UntypedStorage.device
    real_resize: Any = torch.UntypedStorage.resize_

    def data_ptr(self: Any) -> int:
        virtual = self.__dict__.get("virtual")
        return int(virtual[0].address if virtual is not None else real_pointer(self))

    def device(self: Any) -> torch.device:
        virtual = self.__dict__.get("virtual")
        return virtual[1] if virtual is not None else real_device.__get__(self)  # type: ignore[no-any-return]

    def resize_(self: Any, size: int) -> Any:
        """Resize the storage; FSDP frees and reallocates its gathered parameters this way."""
        real_resize(self, size)
        virtual = self.__dict__.get("virtual")
        if virtual is not None and virtual[0].nbytes != size:
            virtual[0].resize(size)
        return self

    patches.set(torch.UntypedStorage, "data_ptr", data_ptr)
    patches.set(torch.UntypedStorage, "resize_", resize_)
    patches.set(torch.UntypedStorage, "device", property(device))
    return patches.undo


def install_argument_conversions() -> Callable[[], None]:
    """Replace functions whose C++ reads or writes an argument's memory before any operator runs.

    The argument is passed in an equivalent form that C++ doesn't have to read. Returns the undo.
    """
    patches = Patches()
    for owner in (torch, torch.Tensor):
        patches.set(owner, "tensor_split", _with_numeric_split(owner.tensor_split))
    patches.set(torch, "ctc_loss", _with_tensor_lengths(torch.ctc_loss))
    return patches.undo


def _with_numeric_split(original: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor_split`` with the tensor of indices converted to numbers."""

    @functools.wraps(original)
    def tensor_split(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        places = args[0] if args else kwargs.get("tensor_indices_or_sections")
        if not isinstance(places, VirtualTensor) or not places.is_cpu or places.dtype != torch.int64:
            return original(tensor, *args, **kwargs)  # C++ raises the error for the other cases
        kwargs.pop("tensor_indices_or_sections", None)
        return original(tensor, places.tolist(), *args[1:], **kwargs)

    return tensor_split


def _with_tensor_lengths(original: Callable[..., Any]) -> Callable[..., Any]:
    """``ctc_loss`` with the lengths as numbers, from which C++ creates a tensor on the loss's device."""

    @functools.wraps(original)
    def ctc_loss(log_probs: Any, targets: Any, *args: Any, **kwargs: Any) -> Any:
        names = ("input_lengths", "target_lengths")
        lengths = [args[place] if place < len(args) else kwargs.get(name) for place, name in enumerate(names)]
        if not isinstance(log_probs, VirtualTensor) or any(isinstance(one, torch.Tensor) for one in lengths):
            return original(log_probs, targets, *args, **kwargs)
        rest = {name: value for name, value in kwargs.items() if name not in names}
        known_lengths = [torch.tensor(one, device=log_probs.device) for one in lengths]
        return original(log_probs, targets, *known_lengths, *args[2:], **rest)

    return ctc_loss
