"""Saving: the program's real code path down to the file, which has its true length but none of the bytes.

``torch.save`` really pickles, so unpicklable objects raise; safetensors' own checks for shared and non-contiguous
tensors run. Small known values are written, and holes replace the rest; reading such a file returns tensors of
unknown values.
"""

from __future__ import annotations

import ctypes
import functools
import io
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import PurePath
from types import ModuleType
from typing import Any

import torch

from gonogo.virtual import private
from gonogo.virtual.memory.tracking import Cell
from gonogo.virtual.origins import Described, Origins, embed_in_location, pieces_in, pieces_of
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.reentrancy import InternalWork
from gonogo.virtual.tensor import VirtualTensor, local_tensors
from gonogo.virtual.values import contents
from gonogo.virtual.weights import private_serialization
from gonogo.virtual.weights.file_tensors import tensor_without_values
from gonogo.virtual.weights.saving_safetensors import replace_writers
from gonogo.virtual.weights.torch_archive import (
    UNREAD_LOCATION_PREFIX,
    ArchiveRecord,
    archive_records,
    names_in_archive,
    write_archive,
)

OnWrite = Callable[[str, int, int], None]
"""Called with a file's path, its length in bytes, and the number of tensors in it."""
_VALUES_LIMIT_BYTES = 1 << 20
"""Storages up to this size are written with their values, if they are known."""
_STREAM_LIMIT_BYTES = 64 << 20
"""The same limit for an in-memory stream, with which programs send tensors to their other processes."""
_MAX_WRAPPED_STREAMS = 4


def install(on_write: OnWrite = lambda path, nbytes, tensors: None) -> Patches:
    """Make ``torch.save`` and safetensors write files without the tensors' bytes, until ``undo()`` of the result."""
    patches = Patches()

    def report_write(path: str, nbytes: int, tensors: int) -> None:
        if not InternalWork.now:
            on_write(path, nbytes, tensors)

    original = torch.save

    @functools.cache
    def archive_record_names() -> frozenset[str]:
        """Names of the records that this torch writes into an archive."""
        written = io.BytesIO()
        with private.without_dispatch_modes():
            original({}, written)
        return names_in_archive(written)

    def save(
        obj: object,
        f: Any,
        pickle_module: Any = pickle,
        pickle_protocol: int = 2,
        _use_new_zipfile_serialization: bool = True,
        _disable_byteorder_record: bool = False,
    ) -> None:
        """Like ``torch.save``; tensors without values occupy no space."""
        private_serialization.check_save_arguments(f, pickle_module)
        stored = _Storages(_STREAM_LIMIT_BYTES if isinstance(f, io.BytesIO) else _VALUES_LIMIT_BYTES)
        if Origins.followed:
            _name_tensors(obj, "", stored.names)
        data = _pickle_object(obj, stored, pickle_module, pickle_protocol)
        records = archive_records(data, stored.records(), archive_record_names())
        if isinstance(f, str | os.PathLike):
            path = os.fspath(f)
            with open(path, "wb") as file:
                length = write_archive(file, PurePath(os.fsdecode(path)).stem or "archive", records, sparse=True)
            report_write(str(path), length, stored.tensors)
            if Origins.followed:
                Origins.on_omitted(-stored.label_bytes)
            stored.report_saved(os.fsdecode(path))
        else:
            length = write_archive(f, "archive", records, sparse=False)
            if hasattr(f, "flush"):
                f.flush()
            omitted = sum(record.nbytes for record in records if record.data is None)
            streamed_to = _stream_path(f)
            report_write(streamed_to or "a stream", length + omitted, stored.tensors)
            if Origins.followed and not isinstance(f, io.BytesIO):
                Origins.on_omitted(omitted - stored.label_bytes)
            stored.report_saved(streamed_to)

    patches.set(torch, "save", save)
    patches.replace_everywhere([(original, save)], excluded_modules=[torch])

    def replace_safetensors_writers(module: ModuleType) -> None:
        replace_writers(patches, module, report_write)

    patches.on_undo(after_import("safetensors.torch", replace_safetensors_writers))
    return patches


def _stream_path(stream: Any) -> str:
    """The file that a stream writes to, also through others, as torch.distributed.checkpoint does; empty if unknown."""
    for _ in range(_MAX_WRAPPED_STREAMS):
        name = getattr(stream, "name", None)
        if isinstance(name, str):
            return name
        stream = getattr(stream, "raw", None)
    return ""


class _StorageStub:
    """Stand-in for a virtual tensor's storage in a pickle."""

    def __init__(self, persistent_id: tuple[Any, ...]) -> None:
        self.persistent = persistent_id


class _Storages:
    """The storages found during pickling, numbered as torch does."""

    def __init__(self, limit: int) -> None:
        self._by_identity: dict[int, tuple[int, Any]] = {}
        self._limit = limit
        self.tensors = 0
        self.names: dict[int, str] = {}
        """The path of the first tensor on each virtual storage, if origins are tracked."""
        self._described: list[Described] = []
        self.label_bytes = 0
        """Bytes that the origin labels add to the archive."""

    def _storage_key(self, owner: Any, identity: int) -> str:
        known = self._by_identity.setdefault(identity, (len(self._by_identity), owner))
        return str(known[0])

    def stub_for(self, tensor: VirtualTensor) -> _StorageStub:
        """The stub for a virtual tensor's storage."""
        self.tensors += 1
        dtype, cell = tensor.dtype, tensor.cell
        kind = private_serialization.storage_type_of(dtype)
        itemsize = dtype.itemsize if kind is not None else 1
        location = (
            str(tensor.device)
            if _known_bytes(cell, self._limit) is not None
            else f"{UNREAD_LOCATION_PREFIX}{tensor.device}"
        )
        key = self._storage_key(cell, id(cell))
        if Origins.followed:
            location = self._embed_origin(location, cell)
            described = self.names.get(id(cell), ""), tuple(tensor.shape), str(dtype), pieces_in(tensor)
            self._described.append(described)
        return _StorageStub(("storage", kind or torch.UntypedStorage, key, location, cell.nbytes // itemsize))

    def real_persistent_id(self, storage: Any) -> tuple[Any, ...]:
        """The persistent id of a real storage, as torch creates it."""
        if isinstance(storage, torch.storage.TypedStorage):
            untyped = storage._untyped_storage
            kind: Any = private_serialization.storage_type_of(storage.dtype) or torch.UntypedStorage
            count = untyped.nbytes() // (storage.dtype.itemsize if kind is not torch.UntypedStorage else 1)
        else:
            untyped, kind, count = storage, torch.UntypedStorage, storage.nbytes()
        self.tensors += 1
        cell, device = getattr(untyped, "virtual", (None, None))
        if cell is not None:  # a virtual tensor's own storage
            where = str(device) if _known_bytes(cell, self._limit) is not None else f"{UNREAD_LOCATION_PREFIX}{device}"
            where = self._embed_origin(where, cell) if Origins.followed else where
            return ("storage", kind, self._storage_key(cell, id(cell)), where, count)
        location = "cpu" if untyped.device.type == "cpu" else f"{UNREAD_LOCATION_PREFIX}cpu"
        return ("storage", kind, self._storage_key(untyped, untyped._cdata), location, count)

    def _embed_origin(self, location: str, cell: Cell) -> str:
        labelled = embed_in_location(location, self.names.get(id(cell), ""), pieces_of(cell, 0, cell.nbytes))
        self.label_bytes += len(labelled.encode()) - len(location.encode())
        return labelled

    def report_saved(self, file: str) -> None:
        """Report the tensors saved to the file, if origins are tracked."""
        if Origins.followed and not InternalWork.now:
            Origins.on_saved(file, self._described)

    def records(self) -> list[ArchiveRecord]:
        """The records of all storages, with holes for those without values."""
        found = []
        for number, owner in self._by_identity.values():
            data = _known_bytes(owner, self._limit) if isinstance(owner, Cell) else _storage_contents(owner)
            nbytes = owner.nbytes if isinstance(owner, Cell) else owner.nbytes()
            if isinstance(owner, Cell) and owner.freed_by.name != "cpu":  # torch copies storages one at a time
                tensor_without_values((nbytes,), torch.uint8, "cpu", mapped=False)
            found.append(ArchiveRecord(f"data/{number}", nbytes, data))
        return found


def _name_tensors(value: Any, name: str, names: dict[int, str]) -> None:
    """Map storages to the path of their first tensor in an object of dicts and lists."""
    for tensor in local_tensors(value):
        names.setdefault(id(tensor.cell), name)
    items: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    )
    for key, item in items:
        _name_tensors(item, f"{name}.{key}" if name else str(key), names)


def _known_bytes(cell: Cell, limit: int) -> bytes | None:
    """The bytes of a virtual storage, or None if they are unknown or too many."""
    if cell.values is None or cell.nbytes > limit:
        return None
    with private.without_dispatch_modes():
        held = cell.values
        if isinstance(held, contents.UniformValues):
            scalar = held.scalar.reshape(1)
            held = scalar.expand(cell.nbytes // scalar.element_size()).clone().untyped_storage()
        return _storage_contents(held, cell.nbytes)


def _storage_contents(storage: Any, nbytes: int | None = None) -> bytes | None:
    if storage.device.type != "cpu":
        return None
    length = storage.nbytes() if nbytes is None else min(nbytes, storage.nbytes())
    return ctypes.string_at(storage.data_ptr(), length) if length else b""


def _pickle_object(obj: object, storages: _Storages, pickle_module: Any, protocol: int) -> bytes:
    class Pickler(pickle_module.Pickler):  # type: ignore[misc]
        def persistent_id(self, item: Any) -> Any:
            if isinstance(item, _StorageStub):
                return item.persistent
            if isinstance(item, torch.storage.TypedStorage) or torch.is_storage(item):
                return storages.real_persistent_id(item)
            return None

        def reducer_override(self, item: Any) -> Any:
            return _reduce_tensor(item, storages) if isinstance(item, VirtualTensor) else NotImplemented

    buffer = io.BytesIO()
    Pickler(buffer, protocol=protocol).dump(obj)
    return buffer.getvalue()


def _reduce_tensor(tensor: VirtualTensor, storages: _Storages) -> Any:
    """The reduce value of a real tensor of the same kind."""
    state = dict(tensor.__dict__)
    hooks: OrderedDict[Any, Any] = OrderedDict()
    if isinstance(tensor, torch.nn.Parameter):
        state.pop("_is_param", None)
        return private_serialization.rebuild_parameter(_detach_parameter(tensor), tensor.requires_grad, hooks, state)
    function, arguments = private_serialization.rebuild_arguments(
        tensor.dtype, storages.stub_for(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(),
        tensor.requires_grad, hooks,
    )  # fmt: skip
    return private_serialization.rebuild_with_state(function, arguments, state) if state else (function, arguments)


def _detach_parameter(parameter: VirtualTensor) -> torch.Tensor:
    with VirtualTensor.virtual_mode, torch.no_grad():
        return parameter.detach()
