"""``torch.load`` without the bytes of large tensors.

torch itself reads the archive as with ``mmap=True``, but the mapped file is replaced, so that nothing is mapped, and
so is the step that creates a tensor from a storage. Small storages keep their values (random states, step counts);
those omitted by a virtual ``torch.save`` are marked by their location.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gonogo.virtual import private
from gonogo.virtual.generators import check_rng_state
from gonogo.virtual.origins import record_read, split_location
from gonogo.virtual.patching.garbage import restore_gc_thresholds
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.weights import private_serialization
from gonogo.virtual.weights.file_tensors import VALUES_LIMIT_BYTES, tensor_with_values, tensor_without_values
from gonogo.virtual.weights.generated_state import GeneratedStates
from gonogo.virtual.weights.torch_archive import UNREAD_LOCATION_PREFIX, omitted_records, restore_holes


class _MappedFileStorage:
    """Stand-in for the storage of a whole mapped file: its slices are storages without memory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._slices: dict[tuple[int, int], Any] = {}

    def __getitem__(self, place: slice) -> Any:
        key = (place.start, place.stop)
        storage = self._slices.get(key)
        if storage is None:
            make: Any = torch.UntypedStorage
            storage = self._slices[key] = make(place.stop - place.start, device="meta")
            storage.gonogo_place = place
        return storage

    def read_slice(self, storage: Any) -> torch.Tensor:
        """Read the bytes of a slice."""
        place = storage.gonogo_place
        with open(self.path, "rb") as file:
            file.seek(place.start)
            data = bytearray(file.read(place.stop - place.start))
        return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8, device="cpu")


class _LoadState:
    """The state of a running ``torch.load``: each storage's target device, and the tensor that represents it."""

    def __init__(self, map_location: Any, memory_mapped: bool, file: _MappedFileStorage | None, path: str) -> None:
        self.map_location = map_location
        self.path = path
        self.mapped = memory_mapped
        self.file = file
        self.places: dict[int, tuple[Any, Any, bool]] = {}
        self.bases: dict[int, torch.Tensor] = {}
        self.origins: dict[int, str | None] = {}

    def record_location(self, storage: Any, location: Any) -> Any:
        """Passed to torch as ``map_location``: records the storage's target device, and returns it unchanged."""
        location, self.origins[storage._cdata] = split_location(location)
        unread = location.startswith(UNREAD_LOCATION_PREFIX)
        location = location.removeprefix(UNREAD_LOCATION_PREFIX)
        self.places[storage._cdata] = (storage, self._target_device(storage, location), unread)
        return storage

    def _target_device(self, storage: Any, location: str) -> Any:
        wanted = self.map_location
        if callable(wanted):
            answer = wanted(_StorageProxy(torch.device(location)), location)
            return location if answer is None else answer.device
        if isinstance(wanted, dict):
            location = wanted.get(location, location)
        elif wanted is not None:
            location = os.fsdecode(wanted) if isinstance(wanted, bytes) else str(wanted)
        if str(location).startswith("cuda"):
            private_serialization.check_cuda_location(str(location))
        return location

    def make_tensor(self, storage: Any, offset: int, size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        """A tensor on a storage; tensors on the same storage share memory."""
        untyped = getattr(storage, "_untyped_storage", storage)
        _, device, unread = self.places.get(untyped._cdata, (None, "cpu", False))
        base = self.bases.get(untyped._cdata)
        if base is None:
            base = self.bases[untyped._cdata] = self._storage_tensor(untyped, device, dtype, unread)
            record_read(base, self.origins.get(untyped._cdata), self.path)
        if base.device.type == "meta":
            with private.without_dispatch_modes():
                return torch.empty_strided(size, stride, dtype=dtype, device="meta")
        with VirtualTensor.virtual_mode, torch.no_grad():
            if base.dtype != dtype:
                base = base.view(dtype)
            return base.detach().as_strided(size, stride, offset)

    def _storage_tensor(self, untyped_storage: Any, device: Any, dtype: torch.dtype, is_unread: bool) -> torch.Tensor:
        nbytes = untyped_storage.nbytes()
        in_file = self.file is not None and hasattr(untyped_storage, "gonogo_place")
        if is_unread or nbytes > VALUES_LIMIT_BYTES or (untyped_storage.device.type == "meta" and not in_file):
            return tensor_without_values((nbytes // dtype.itemsize,), dtype, device, mapped=self.mapped)
        with private.without_dispatch_modes():
            if in_file and self.file is not None:
                value = self.file.read_slice(untyped_storage).view(dtype)
            else:
                value = torch.empty(0, dtype=dtype, device="cpu").set_(untyped_storage)
        return tensor_with_values(value, device, mapped=self.mapped)


class _StorageProxy:
    """The storage passed to a program's own ``map_location`` function, which returns it or moves it to a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def cpu(self) -> _StorageProxy:
        return _StorageProxy(torch.device("cpu"))

    def cuda(self, device: Any = None, non_blocking: bool = False) -> _StorageProxy:
        where = torch.device("cuda") if device is None else device
        return _StorageProxy(torch.device("cuda", where) if isinstance(where, int) else torch.device(where))

    def npu(self, device: Any = None, non_blocking: bool = False) -> _StorageProxy:
        where = "npu" if device is None else device
        return _StorageProxy(torch.device("npu", where) if isinstance(where, int) else torch.device(where))

    def to(self, *, device: Any, non_blocking: bool = False) -> _StorageProxy:
        return _StorageProxy(torch.device(device))


_current_load = threading.local()


def install(patches: Patches, on_open: Callable[[str], None], states: GeneratedStates) -> None:
    """Replace ``torch.load``, and the step that creates a tensor from a storage."""
    original = torch.load
    utils = private_serialization.utils
    rebuild = utils._rebuild_tensor
    rebuild_v3: Any = getattr(utils, "_rebuild_tensor_v3", None)  # new in torch 2.2

    def load(
        f: Any,
        map_location: Any = None,
        pickle_module: Any = None,
        *,
        weights_only: bool | None = None,
        mmap: bool | None = None,
        **arguments: Any,
    ) -> Any:
        """Like ``torch.load``; large tensors have no values."""
        restore_gc_thresholds()  # its unpickler is a cycle, which keeps what was loaded up to the next collection
        path = _path_of(f)
        if path is not None and path.endswith(".safetensors"):
            return original(f, map_location, pickle_module, weights_only=weights_only, mmap=mmap, **arguments)
        with _open_with_holes(f, path) as (source, is_archive):
            mapped = bool(mmap)
            use_map = True if is_archive and isinstance(source, str) else mmap
            file = _MappedFileStorage(source) if is_archive and isinstance(source, str) else None
            loading = _LoadState(map_location, mapped, file, os.fsdecode(path) if path is not None else "")
            before = getattr(_current_load, "loading", None)
            _current_load.loading = loading
            try:
                with private.without_dispatch_modes():
                    result = original(
                        source,
                        loading.record_location,
                        pickle_module,
                        weights_only=weights_only,
                        mmap=use_map,
                        **arguments,
                    )
            except FileNotFoundError as error:
                error.filename = f
                raise
            finally:
                _current_load.loading = before
            result = states.of_file(result, source) if is_archive else result
        if path is not None:
            on_open(path)
        return result

    def rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> torch.Tensor:
        loading: _LoadState | None = getattr(_current_load, "loading", None)
        if loading is None:
            plain: torch.Tensor = rebuild(storage, storage_offset, size, stride)
            return plain
        return loading.make_tensor(storage, storage_offset, size, stride, storage.dtype)

    def rebuild_tensor_v3(
        storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool, hooks: Any, dtype: Any,
        metadata: Any = None,
    ) -> torch.Tensor:  # fmt: skip
        loading: _LoadState | None = getattr(_current_load, "loading", None)
        if loading is None:
            plain: torch.Tensor = rebuild_v3(
                storage, storage_offset, size, stride, requires_grad, hooks, dtype, metadata
            )
            return plain
        return loading.make_tensor(storage, storage_offset, size, stride, dtype).requires_grad_(requires_grad)

    from_file = torch.UntypedStorage.from_file

    def mapped_file(filename: Any, *args: Any, **kwargs: Any) -> Any:
        loading: _LoadState | None = getattr(_current_load, "loading", None)
        if loading is not None and loading.file is not None and loading.file.path == filename:
            return loading.file
        return from_file(filename, *args, **kwargs)

    patches.set(torch.UntypedStorage, "from_file", staticmethod(mapped_file))
    rebuild_tensor_v3.__name__ = rebuild_tensor_v3.__qualname__ = "_rebuild_tensor_v3"
    rebuild_tensor_v3.__module__ = "torch._utils"
    patches.set(utils, "_rebuild_tensor", rebuild_tensor)
    patches.set(utils, "_rebuild_tensor_v3", rebuild_tensor_v3)
    private_serialization.forget_safe_globals()
    patches.on_undo(private_serialization.forget_safe_globals)
    patches.set(torch, "load", load)
    set_state = torch.random.set_rng_state

    def set_rng_state(new_state: torch.Tensor) -> None:
        """Like ``torch.set_rng_state``, for a state that was loaded from a checkpoint."""
        check_rng_state(new_state)
        if isinstance(new_state, VirtualTensor):
            new_state = VirtualTensor.virtual_mode.values_or_assumed(new_state)
        set_state(new_state)

    patches.set(torch.random, "set_rng_state", set_rng_state)
    patches.replace_everywhere([(original, load), (set_state, set_rng_state)], excluded_modules=[torch.random])


def _path_of(f: Any) -> str | None:
    """The path of a file, including an open file object at its start."""
    if isinstance(f, str | os.PathLike):
        return os.fspath(f)
    name = getattr(f, "name", None)
    try:
        if isinstance(name, str) and f.tell() == 0 and os.path.samestat(os.fstat(f.fileno()), os.stat(name)):
            return name
    except (AttributeError, OSError, ValueError):
        pass
    return None


def _read_into_buffer(f: Any) -> Any:
    """The rest of a stream as a separate buffer, or the stream itself if it doesn't contain bytes."""
    if isinstance(f, io.BytesIO) and f.tell() == 0:
        return f
    try:
        return io.BytesIO(f.read())
    except (AttributeError, OSError, TypeError, ValueError):
        return f


@contextlib.contextmanager
def _open_with_holes(f: Any, path: str | None) -> Iterator[tuple[Any, bool]]:
    """The input for torch: a file in which records omitted by a virtual save are restored as holes."""
    source: Any = _read_into_buffer(f) if path is None else path
    if path is not None and not os.path.isfile(source):
        yield f, False
        return
    try:
        is_archive = zipfile.is_zipfile(source)
        omitted = omitted_records(source) if is_archive else {}
    except (OSError, zipfile.BadZipFile):
        is_archive, omitted = False, {}
    if path is None and hasattr(source, "seek"):
        source.seek(0)
    if not omitted:
        yield source, is_archive
        return
    descriptor, expanded = tempfile.mkstemp(suffix=".pt")
    os.close(descriptor)
    try:
        restore_holes(source, expanded, omitted)
        yield expanded, True
    finally:
        os.unlink(expanded)
