"""Objects sent between processes: pickled as in Ray, with tensors keeping their known values."""

from __future__ import annotations

import importlib
import io
import pickle
import weakref
from typing import Any, NamedTuple

import torch

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor


class PickledObject(NamedTuple):
    """A serialized object. ``kept`` are tensors, references and handles, which are passed without copying."""

    data: bytes
    kept: list[Any]


class _ReceiveContext:
    """The context of the receiver during unpickling."""

    kept: list[Any]


def _receive_kept_value(index: int) -> Any:
    value = _ReceiveContext.kept[index]
    if not isinstance(value, tuple):
        return value
    tensor, device, needs_gradient, is_parameter = value
    if device.type != "cpu" and not torch.cuda.is_available():
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are "
            "running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your "
            "storages to the CPU."
        )
    with torch.no_grad():
        copy = tensor.to(device) if device.type != "cpu" else tensor.clone()
    return torch.nn.Parameter(copy, needs_gradient) if is_parameter else copy.requires_grad_(needs_gradient)


def pack(value: Any, passed: tuple[type, ...]) -> PickledObject:
    """Pickle a value; objects of the types ``passed`` are passed by reference. Raises the errors of pickling."""
    pickler: Any = importlib.import_module("ray.cloudpickle").CloudPickler
    kept: list[Any] = []

    class Pickler(pickler):  # type: ignore[misc]
        """cloudpickle's pickler, except for objects passed by reference."""

        def reducer_override(self, one: Any) -> Any:
            """Replace tensors, references and handles by their index."""
            if isinstance(one, passed):
                kept.append(one)
            elif isinstance(one, VirtualTensor):
                with torch.no_grad():
                    copy = one.detach().to("cpu", copy=True)
                leaf = one.requires_grad and one.is_leaf
                kept.append((copy, one._device, leaf, isinstance(one, torch.nn.Parameter)))
            else:
                return pickler.reducer_override(self, one)
            return _receive_kept_value, (len(kept) - 1,)

    stream = io.BytesIO()
    made: Any = Pickler
    made(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return PickledObject(stream.getvalue(), kept)


def process_local_class(kind: type, passed: tuple[type, ...]) -> type:
    """A per-process copy of an actor's class that is defined in a function, including all that it refers to.

    Ray pickles such a class by value for each process, so changes that a worker makes there stay its own. A class
    that can't be copied this way is used as it is.
    """
    original = getattr(kind, "__ray_actor_class__", kind)
    if "<locals>" not in original.__qualname__:
        return kind
    module: Any = importlib.import_module("ray.cloudpickle.cloudpickle")
    patches = Patches()
    patches.set(module, "_get_or_create_tracker_id", lambda _: None)  # it would recognize the class as already loaded
    try:
        copy = unpack(pack(kind, passed))
    except Exception:
        return kind
    finally:
        patches.undo()
    return copy if isinstance(copy, type) else kind


def unpack(packed: PickledObject) -> Any:
    """Unpickle the receiver's copy."""
    before = getattr(_ReceiveContext, "kept", [])
    _ReceiveContext.kept = packed.kept
    try:
        return pickle.loads(packed.data)
    finally:
        _ReceiveContext.kept = before


_shared: Any = weakref.WeakValueDictionary()
"""Tensors whose memory was shared with another process by a handle."""


def share_memory(patches: Patches) -> None:
    """Patch ``reduce_tensor`` for accelerator tensors: pass a CUDA IPC handle through which other processes see the
    memory."""
    module: Any = importlib.import_module("torch.multiprocessing.reductions")
    original = module.reduce_tensor

    def reduce_tensor(tensor: Any) -> Any:
        if not isinstance(tensor, VirtualTensor) or tensor.device.type == "cpu":
            return original(tensor)
        key = f"{id(tensor)}-{len(_shared)}"
        _shared[key] = tensor
        return rebuild_shared, (key, *([None] * 5), tensor.device.index)

    patches.replace_everywhere([(original, reduce_tensor)])


def rebuild_shared(key: str, *_: Any) -> Any:
    """The same memory in another process; it takes no additional memory."""
    return _shared[key].detach()
