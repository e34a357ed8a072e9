"""Replacements for safetensors' writers, which write the header and leave holes for the data.

safetensors' own Python code runs up to the call that would read memory; the functions that would do so are replaced,
both in versions that take addresses (since 0.6) and in those that take bytes.
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from gonogo.finding import Text
from gonogo.virtual import private
from gonogo.virtual.origins import Described, Origins, pieces_in, pieces_to_json
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.reentrancy import InternalWork
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.unsupported import UnsupportedOperator
from gonogo.virtual.weights.file_tensors import VALUES_LIMIT_BYTES, tensor_without_values
from gonogo.virtual.weights.safetensors_names import DTYPE_NAMES, ORIGINS, UNREAD_KEY

_MAX_IN_MEMORY_BYTES = 256 << 20


class _TensorBytes:
    """A tensor's bytes: mimics the array and its address, which safetensors passes on to its compiled code."""

    def __init__(self, tensor: torch.Tensor, copy: torch.Tensor | None = None) -> None:
        self.tensor = tensor
        self.copy = copy
        self.nbytes = tensor.numel() * tensor.element_size()

    def __len__(self) -> int:
        return self.nbytes

    @property
    def ctypes(self) -> _TensorBytes:
        """``array.ctypes``; a property, since a reference to itself would keep the copy alive."""
        return self

    @property
    def data(self) -> _TensorBytes:
        """``array.ctypes.data``."""
        return self

    def known_bytes(self) -> bytes | None:
        """The bytes if they are known and few, else None."""
        tensor = self.tensor
        if isinstance(tensor, VirtualTensor):
            if self.nbytes > VALUES_LIMIT_BYTES:
                return None
            value = VirtualTensor.virtual_mode.known_values(tensor)
            if value is None:
                return None
            tensor = value
        elif tensor.device.type == "meta":
            return None
        with private.without_dispatch_modes():
            tensor = tensor.detach().contiguous()
            return ctypes.string_at(tensor.data_ptr(), self.nbytes) if self.nbytes else b""


class _Spec:
    """Stand-in for ``TensorSpec``."""

    def __init__(self, *, dtype: str, shape: Any, data_ptr: Any, data_len: int) -> None:
        if dtype not in DTYPE_NAMES:
            raise ValueError(f"dtype {dtype} is not one that safetensors can store")
        self.dtype, self.shape, self.data_ptr, self.data_len = dtype, list(shape), data_ptr, data_len


def replace_writers(patches: Patches, module: ModuleType, on_write: Callable[[str, int, int], None]) -> None:
    """Replace the functions with which ``safetensors.torch`` writes."""
    original = getattr(module, "_to_ndarray", None)
    if original is not None:

        def to_ndarray(tensor: torch.Tensor) -> Any:
            if not isinstance(tensor, VirtualTensor) and tensor.device.type != "meta":
                return original(tensor)
            host = tensor.to("cpu") if tensor.device.type not in ("cpu", "meta") else tensor
            return _TensorBytes(host), host

        patches.set(module, "_to_ndarray", to_ndarray)
        patches.set(module, "TensorSpec", _Spec)
    to_bytes = getattr(module, "_tobytes", None)
    if to_bytes is not None:

        def tobytes(tensor: torch.Tensor, name: str) -> Any:
            if not isinstance(tensor, VirtualTensor) and tensor.device.type != "meta":
                return to_bytes(tensor, name)
            if not tensor.is_contiguous():
                raise ValueError(
                    f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. It either means"
                    " you are trying to save tensors which are reference of each other in which case it's recommended"
                    " to save only the full tensors, and reslice at load time, or simply call `.contiguous()` on your"
                    " tensor to pack it before saving."
                )
            host = tensor.to("cpu") if tensor.device.type not in ("cpu", "meta") else tensor
            copied = tensor.device.type != "meta"
            nbytes = tensor.numel() * tensor.element_size()
            copy = tensor_without_values((nbytes,), torch.uint8, "cpu", mapped=False) if copied else None
            return _TensorBytes(host, copy)

        patches.set(module, "_tobytes", tobytes)

    def serialize_file(tensor_dict: dict[str, Any], filename: Any, metadata: dict[str, str] | None = None) -> None:
        tensors = _ordered_layouts(tensor_dict)
        described = _describe_tensors(tensor_dict) if Origins.followed else []
        header = _encode_header(tensors, _add_origins(metadata, described))
        with open(filename, "wb") as file:
            file.write(header)
            for _, _, _, start, _, content in tensors:
                if content is not None:
                    file.seek(len(header) + start)
                    file.write(content)
            length = len(header) + (tensors[-1][4] if tensors else 0)
            file.truncate(length)
        on_write(str(filename), length, len(tensors))
        if Origins.followed:
            Origins.on_omitted(len(_encode_header(tensors, metadata)) - len(header))
        if Origins.followed and not InternalWork.now:
            Origins.on_saved(str(filename), described)

    def serialize(tensor_dict: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
        tensors = _ordered_layouts(tensor_dict)
        header = _encode_header(
            tensors, _add_origins(metadata, _describe_tensors(tensor_dict) if Origins.followed else [])
        )
        length = tensors[-1][4] if tensors else 0
        if length > _MAX_IN_MEMORY_BYTES:
            raise UnsupportedOperator(
                "safetensors.serialize",
                Text(
                    f"the {length:,} bytes of a model held in one object", f"一个对象中存放了整个模型的 {length:,} 字节"
                ),
            )
        return header + b"".join(
            bytes(end - start) if content is None else content for _, _, _, start, end, content in tensors
        )

    patches.set(module, "serialize_file", serialize_file)
    patches.set(module, "serialize", serialize)


_TensorLayout = tuple[str, str, list[int], int, int, "bytes | None"]
"""Name, safetensors' dtype, shape, begin, end, and the bytes if they are known."""


def _describe_tensors(tensor_dict: dict[str, Any]) -> list[Described]:
    """The origins of each tensor, if they are tracked."""
    found: list[Described] = []
    for name, spec in tensor_dict.items():
        data = spec.data_ptr if isinstance(spec, _Spec) else spec["data"]
        tensor = data.tensor if isinstance(data, _TensorBytes) else None
        if isinstance(tensor, VirtualTensor):
            found.append((name, tuple(tensor.shape), str(tensor.dtype), pieces_in(tensor)))
    return found


def _add_origins(metadata: dict[str, str] | None, tensor_origins: list[Described]) -> dict[str, str] | None:
    if not tensor_origins:
        return metadata
    piece_table = {name: pieces_to_json(name, pieces) for name, _, _, pieces in tensor_origins}
    return {**(metadata or {}), ORIGINS: json.dumps(piece_table)}


def _ordered_layouts(tensor_dict: dict[str, Any]) -> list[_TensorLayout]:
    """Tensors in safetensors' order: larger dtypes first, then by name."""
    found = []
    for name, spec in tensor_dict.items():
        if isinstance(spec, _Spec):
            dtype, shape, data, length = spec.dtype, spec.shape, spec.data_ptr, spec.data_len
        else:
            dtype, shape, data, length = spec["dtype"], list(spec["shape"]), spec["data"], len(spec["data"])
        if isinstance(data, _TensorBytes):
            content = data.known_bytes()
        elif isinstance(data, int):
            content = ctypes.string_at(data, length) if length else b""
        else:
            content = bytes(data)
        if dtype == "float4_e2m1fn_x2":
            shape = [*shape[:-1], shape[-1] * 2]
        found.append((name, dtype, shape, length, content))
    found.sort(key=lambda item: (-getattr(torch, item[1]).itemsize, item[0]))
    laid: list[_TensorLayout] = []
    at = 0
    for name, dtype, shape, length, content in found:
        laid.append((name, DTYPE_NAMES[dtype], shape, at, at + length, content))
        at += length
    return laid


def _encode_header(tensors: list[_TensorLayout], metadata: dict[str, str] | None) -> bytes:
    unread = [name for name, _, _, _, _, content in tensors if content is None]
    described: dict[str, Any] = {}
    marks = {UNREAD_KEY: "all" if len(unread) == len(tensors) else json.dumps(unread)} if unread else {}
    if metadata or marks:
        described["__metadata__"] = {**(metadata or {}), **marks}
    for name, dtype, shape, start, end, _ in tensors:
        described[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
