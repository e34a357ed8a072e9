"""safetensors files read without their data: ``safe_open`` is answered from the header.

safetensors itself validates the file (through NumPy's reader, since torch's would allocate memory for all of it). A
file written by gonogo lists the tensors without data in its metadata (``UNREAD_KEY`` of ``safetensors_names.py``); from
a real one only small tensors are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch

from gonogo.virtual import private
from gonogo.virtual.origins import Origins, record_read
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.values import real
from gonogo.virtual.weights.base_samples import tensor_sample
from gonogo.virtual.weights.file_tensors import VALUES_LIMIT_BYTES, nbytes_of, tensor_with_values, tensor_without_values
from gonogo.virtual.weights.safetensors_names import ORIGINS, UNREAD_KEY, torch_dtype_or_raise

_TORCH_FRAMEWORK_NAMES = ("pt", "pytorch", "torch")


class Slice:
    """The result of ``get_slice``: has a shape and dtype, and returns a tensor when indexed."""

    def __init__(self, safe_file: SafeOpen, name: str, original: Any) -> None:
        self._opened, self._name, self._original = safe_file, name, original

    def get_shape(self) -> list[int]:
        """The tensor's shape, as in safetensors."""
        return list(self._original.get_shape())

    def get_dtype(self) -> str:
        """safetensors' code of the dtype."""
        return str(self._original.get_dtype())

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self._opened.read_part(self._name, self._original, index)


class SafeOpen:
    """Stand-in for ``safetensors.safe_open``; ``original`` is set by :func:`install`."""

    original: Callable[..., Any]
    on_open: Callable[[str], None] = staticmethod(lambda path: None)
    opened: ClassVar[list[Any]] = []
    """The paths of the opened files, in order."""
    counted = False
    """True if tensors on the CPU are copies of the file's bytes (read, not mapped)."""

    def __init__(self, filename: Any, framework: Any, device: Any = "cpu", **kwargs: Any) -> None:
        self._torch = str(framework) in _TORCH_FRAMEWORK_NAMES
        self._device = device
        self._mapped = kwargs.get("backend", "mmap") == "mmap" and not self.counted
        self._path = filename
        how = ("np",) if self._torch else (framework, device)
        self._file = self.original(filename, *how, **({} if self._torch else kwargs))
        own = self._file.metadata() or {}
        unread = own.get(UNREAD_KEY)
        self._origins: dict[str, str] = json.loads(own.get(ORIGINS, "{}"))
        self._unread = None if unread == "all" else frozenset(json.loads(unread)) if unread else frozenset()
        self._offsets: dict[str, Any] = {}
        self.opened.append(filename)
        self.on_open(str(filename))

    def __enter__(self) -> SafeOpen:
        self._file.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.__exit__(*(error or (None, None, None)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def keys(self) -> Any:
        """The names of all tensors, as in safetensors."""
        return self._file.keys()

    def metadata(self) -> dict[str, str] | None:
        """The header's metadata, without gonogo's own entries."""
        metadata = self._file.metadata()
        return metadata and {key: value for key, value in metadata.items() if key not in (UNREAD_KEY, ORIGINS)}

    def get_slice(self, name: str) -> Any:
        """A :class:`Slice` of a tensor, as in safetensors."""
        original = self._file.get_slice(name)
        return Slice(self, name, original) if self._torch else original

    def get_tensor(self, name: str) -> Any:
        """Like safetensors': the tensor on the device for which the file was opened."""
        return self.read_part(name, self._file.get_slice(name), ...) if self._torch else self._file.get_tensor(name)

    def get_tensors(self) -> dict[str, Any]:
        """Like safetensors': all tensors by name."""
        return {name: self.get_tensor(name) for name in self.keys()}

    def _read(self, name: str, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        """Read a small tensor's real values."""
        self._offsets = self._offsets or _byte_ranges(self._path)
        begin, end = self._offsets[name]
        with open(self._path, "rb") as file:
            file.seek(begin)
            data = bytearray(file.read(end - begin))
        return torch.frombuffer(data, dtype=dtype).reshape(shape) if data else real.empty(shape, dtype=dtype)

    def read_part(self, name: str, original: Any, index: Any) -> torch.Tensor:
        """A tensor, or the part of it selected by ``index``."""
        tensor = self._slice_of_tensor(name, original, index)
        described = self._origins.get(name)
        record_read(tensor, described, str(self._path), name)
        if Origins.followed and described is None and self._unread == frozenset():
            self._record_sample(name, original)
        return tensor

    def _record_sample(self, name: str, original: Any) -> None:
        """Read a few bytes of a tensor, by which it can be told from another file's."""
        if Origins.wants_sample(str(self._path), name):
            self._offsets = self._offsets or _byte_ranges(self._path)
            begin, end = self._offsets[name]
            code, shape = original.get_dtype(), tuple(original.get_shape())
            with private.without_dispatch_modes():
                sample = tensor_sample(self._path, begin, end, shape, torch_dtype_or_raise(code))
            Origins.on_sampled(str(self._path), name, sample)

    def _slice_of_tensor(self, name: str, original: Any, index: Any) -> torch.Tensor:
        shape, dtype = original.get_shape(), torch_dtype_or_raise(original.get_dtype())
        if dtype is getattr(torch, "float4_e2m1fn_x2", None):  # two numbers per byte
            shape = [*shape[:-1], shape[-1] // 2]
        known = self._unread is not None and name not in self._unread and nbytes_of(shape, dtype) <= VALUES_LIMIT_BYTES
        if known:
            with private.without_dispatch_modes():
                value = self._read(name, shape, dtype)[index]
            return tensor_with_values(value, self._device, mapped=self._mapped)
        if index is not ...:
            with private.without_dispatch_modes():
                shape = real.meta(shape, dtype=dtype)[index].shape
        return tensor_without_values(shape, dtype, self._device, mapped=self._mapped)


def tensor_names_in(paths: Iterable[Any]) -> set[str]:
    """The names of all tensors in several files."""
    return {name for path in set(paths) for name in _byte_ranges(path)}


def _byte_ranges(path: Any) -> dict[str, tuple[int, int]]:
    """The byte range of each tensor in the file."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        described = json.loads(file.read(length))
    described.pop("__metadata__", None)
    return {
        name: (8 + length + entry["data_offsets"][0], 8 + length + entry["data_offsets"][1])
        for name, entry in described.items()
    }


def install(patches: Patches, on_open: Callable[[str], None]) -> None:
    """Make every reader of safetensors files read only headers."""
    import safetensors

    original = safetensors.safe_open
    opened = type("safe_open", (SafeOpen,), {"original": staticmethod(original)})
    opened.on_open = staticmethod(on_open)  # type: ignore[attr-defined]
    opened.__module__ = "safetensors"
    patches.set(safetensors, "safe_open", opened)
    patches.replace_everywhere([(original, opened)], excluded_modules=[safetensors])
