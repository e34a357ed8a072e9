"""The checks that kernels make of their tensors, with the messages of the C++ code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

import torch

FLOATING_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_SCALAR_TYPE_NAMES = {
    torch.float64: "Double", torch.float32: "Float", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool",
}  # fmt: skip


def scalar_type(tensor: torch.Tensor) -> str:
    """The dtype's name in C++."""
    return _SCALAR_TYPE_NAMES.get(tensor.dtype, str(tensor.dtype))


def check(condition: bool, message: str) -> None:
    """``TORCH_CHECK``: raise RuntimeError with the message if the condition is False."""
    if not condition:
        raise RuntimeError(message)


def on_accelerator(tensor: torch.Tensor) -> bool:
    """``Tensor::is_cuda``, or its equivalent for other accelerators."""
    return tensor.device.type not in ("cpu", "meta")


def check_in_host_memory(kernel: str, **tensors: torch.Tensor) -> None:
    """Raise RuntimeError for tensors on a device: a CPU kernel would read their pointers and crash the process."""
    for name, tensor in tensors.items():
        check(
            tensor.device.type == "cpu",
            f"{kernel}: {name} is on {tensor.device}, but this kernel reads host memory: "
            "on real hardware the process ends with a segmentation fault",
        )


def check_in_device_memory(kernel: str, **tensors: torch.Tensor) -> None:
    """Raise RuntimeError for tensors in host memory: a device kernel would read their pointers and fail."""
    for name, tensor in tensors.items():
        check(
            on_accelerator(tensor),
            f"{kernel}: {name} is on {tensor.device}, but this kernel reads device memory: on real hardware this is "
            "'CUDA error: an illegal memory access was encountered'",
        )


def check_multi_tensor(tensor_lists: Sequence[Sequence[torch.Tensor]], depth: int, kernel: str) -> None:
    """The checks of ``multi_tensor_apply`` (csrc/adam/multi_tensor_apply.cuh) and of its dtype dispatch macro."""
    if tensor_lists and tensor_lists[0]:
        first = tensor_lists[0][0]
        check(first.dtype in FLOATING_DTYPES, f"{kernel} not implemented for '{scalar_type(first)}'")
    check(len(tensor_lists) == depth, "tensor_lists.size() != depth")
    check(len(tensor_lists[0]) > 0, "tensor_lists[0].size() is not > 0")
    device = tensor_lists[0][0].device
    check(on_accelerator(tensor_lists[0][0]), "expected input to be on cuda")
    for tensors in tensor_lists:
        check(len(tensors) == len(tensor_lists[0]), "Size mismatch among tensor lists")
        for tensor, other in zip(tensors, tensor_lists[0], strict=True):
            check(tensor.is_contiguous() or _is_channels_last(tensor), "A tensor was not contiguous.")
            check(tensor.device == device, "A tensor was not on the same device as the first tensor")
            check(tensor.numel() == other.numel(), "Size mismatch")


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)


def with_signature(words: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``run`` to be called with keyword arguments, after binding like pybind with the given signature.

    ``words`` are the parameters in order: ``step lr weight_decay=0``. Raises TypeError if arguments don't match.
    """
    parameters = []
    for word in words.split():
        name, given, default = word.partition("=")
        parameters.append(
            Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default if given else Parameter.empty)
        )
    signature = Signature(parameters)
    return lambda *args, **kwargs: run(**signature.bind(*args, **kwargs).arguments)
