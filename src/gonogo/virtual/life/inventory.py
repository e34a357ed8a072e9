"""The state that a program trains with: its parameters and buffers, its optimizers' tensors, its counters."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from gonogo.evidence.rehearsal.lives import HeldState, StateCounter, StateOrigin
from gonogo.virtual.hooks.modules import ModuleTracker
from gonogo.virtual.origins import Label, Piece, pieces_in
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor, local_tensors

_WRAPPER_PREFIX_PATTERN = re.compile(
    r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)


class StateTensor(NamedTuple):
    """One tensor of the training state, with this rank's copy or shard of it."""

    kind: Any
    slot: str
    name: str
    tensor: VirtualTensor
    shape: tuple[int, ...]
    trained: bool
    part: str = ""

    @property
    def label(self) -> Label:
        """The label attached to its bytes."""
        return self.kind, self.slot, self.name, self.part

    def to_held_state(self, *, randomly_initialized: bool, initial: tuple[StateOrigin, ...] = ()) -> HeldState:
        """Convert to the form that the rank's record stores."""
        return HeldState(
            self.kind, self.name, self.shape, str(self.tensor.dtype).removeprefix("torch."), self.slot, self.trained,
            randomly_initialized, tuple(_origins_of(self.tensor)), self.part, initial,
        )  # fmt: skip

    @property
    def is_from_file(self) -> bool:
        """True if most of it was read from a file or received from another rank."""
        return sum(origin.share for origin in _origins_of(self.tensor) if origin.kind != "drawn") > 0.5

    def initial_origins(self) -> tuple[StateOrigin, ...]:
        """Where its contents come from before training labels it."""
        return tuple(_origins_of(self.tensor))


def _origins_of(tensor: VirtualTensor) -> Iterator[StateOrigin]:
    return origins_of_pieces(pieces_in(tensor), tensor.numel() * tensor.element_size())


def origins_of_pieces(pieces: Iterable[Piece], nbytes: int) -> Iterator[StateOrigin]:
    """The origins of a tensor of ``nbytes`` bytes, one per label of its pieces."""
    sums: dict[Label, int] = {}
    for start, end, label in pieces:
        sums[label] = sums.get(label, 0) + end - start
    for label, count in sums.items():
        kind, slot, name, part, file, key = (*label, "", "", "", "")[:6]
        yield StateOrigin(kind, slot, name, file, key, round(min(count / max(nbytes, 1), 1.0), 4), part)


def _shard_position(tensor: Any) -> str:
    """The part of a sharded tensor that this rank has, as a string that is equal on ranks with the same part."""
    if isinstance(tensor, DTensor) and any(placement.is_shard() for placement in tensor.placements):
        shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        return f"{tuple(offset)}+{tuple(shape)}"
    return ""


class StateInventory:
    """Tracks the model's tensors, and the optimizers and schedulers that are alive."""

    def __init__(self, modules: ModuleTracker) -> None:
        self._modules = modules
        self._optimizers: list[weakref.ref[Any]] = []
        self._schedulers: list[weakref.ref[Any]] = []
        self._seen: set[int] = set()

    def install(self) -> Callable[[], None]:
        """Record optimizers and schedulers as they are created; returns the undo."""
        patches = Patches()
        _track_instances(patches, torch.optim.Optimizer, self._optimizers)
        for name in ("LRScheduler", "ReduceLROnPlateau"):
            owner = getattr(torch.optim.lr_scheduler, name, None)
            if owner is not None:
                _track_instances(patches, owner, self._schedulers)
        of_deepspeed = functools.partial(_track_deepspeed_schedulers, patches, self._schedulers)
        patches.on_undo(after_import("deepspeed.runtime.lr_schedules", of_deepspeed))
        return patches.undo

    def _root_module(self, trained_model: nn.Module | None) -> nn.Module | None:
        if trained_model is not None:
            return trained_model
        return next(iter(self._modules.roots()), None)

    def state_tensors(self, trained_model: nn.Module | None) -> Iterator[StateTensor]:
        """All tensors of the training state."""
        root = self._root_module(trained_model)
        names: dict[int, str] = {}
        if root is not None:
            yield from _model_tensors(root, names)
        optimizers = [o for one in self._optimizers if (o := one()) is not None]
        used = [optimizer for optimizer in optimizers if _has_state(optimizer)]
        for number, optimizer in enumerate(used):
            yield from _optimizer_tensors(optimizer, names, f"{number + 1}: " if len(used) > 1 else "")

    def step_counters(self) -> Iterator[StateCounter]:
        """The optimizers' step counts, and the schedulers' positions."""
        optimizers = [o for one in self._optimizers if (o := one()) is not None and _has_state(o)]
        for number, optimizer in enumerate(optimizers):
            steps = list(_optimizer_steps(optimizer))
            if steps:
                known = [step for step in steps if step is not None]
                yield StateCounter(
                    "optimizer", _numbered_type_name(optimizer, number, len(optimizers)), max(known, default=None)
                )
        schedulers = [s for one in self._schedulers if (s := one()) is not None]
        for number, scheduler in enumerate(schedulers):
            position = getattr(scheduler, "last_epoch", getattr(scheduler, "last_batch_iteration", None))
            if isinstance(position, int | float):
                yield StateCounter(
                    "scheduler", _numbered_type_name(scheduler, number, len(schedulers)), float(position)
                )


def _numbered_type_name(obj: Any, number: int, count: int) -> str:
    name = type(obj).__name__
    return f"{name} {number + 1}" if count > 1 else name


def _track_instances(patches: Patches, owner: Any, instances: list[weakref.ref[Any]]) -> None:
    original = owner.__init__

    @functools.wraps(original)
    def init_and_track(self: Any, *args: Any, **kwargs: Any) -> None:
        if not any(one() is self for one in instances):
            instances.append(weakref.ref(self))
        original(self, *args, **kwargs)

    patches.set(owner, "__init__", init_and_track)


def _track_deepspeed_schedulers(patches: Patches, instances: list[weakref.ref[Any]], module: ModuleType) -> None:
    """Track DeepSpeed's schedulers, which have no common base class."""
    for owner in list(vars(module).values()):
        if not isinstance(owner, type) or issubclass(owner, torch.optim.lr_scheduler.LRScheduler):
            continue
        if hasattr(owner, "load_state_dict") and hasattr(owner, "step"):
            _track_instances(patches, owner, instances)


def _model_tensors(root: nn.Module, names: dict[int, str]) -> Iterator[StateTensor]:
    for path, parameter in root.named_parameters():
        name = _WRAPPER_PREFIX_PATTERN.sub("", path)
        names[id(parameter)] = name
        partition = getattr(parameter, "ds_tensor", None)
        shape = tuple(getattr(parameter, "ds_shape", parameter.shape))
        for tensor in local_tensors(partition if partition is not None else parameter):
            if tensor.numel():
                trained = bool(parameter.requires_grad)
                yield StateTensor("parameter", "", name, tensor, shape, trained, _shard_position(parameter))
    passing = {
        f"{path}.{name}" if path else name
        for path, module in root.named_modules()
        for name in getattr(module, "_non_persistent_buffers_set", ())
    }
    for path, buffer in root.named_buffers():
        if path not in passing:
            for tensor in local_tensors(buffer):
                if tensor.numel():
                    yield StateTensor(
                        "buffer", "", _WRAPPER_PREFIX_PATTERN.sub("", path), tensor, tuple(buffer.shape), False
                    )


def _has_state(optimizer: Any) -> bool:
    return bool(getattr(optimizer, "state", None)) or any(group["params"] for group in _param_groups(optimizer))


def _param_groups(optimizer: Any) -> list[Any]:
    return list(getattr(optimizer, "param_groups", ()))


def _optimizer_tensors(optimizer: Any, names: dict[int, str], prefix: str) -> Iterator[StateTensor]:
    own: dict[int, str] = {}
    stepped: list[Any] = []
    for number, group in enumerate(_param_groups(optimizer)):
        for place, parameter in enumerate(group["params"]):
            own[id(parameter)] = names.get(id(parameter), f"group {number}, tensor {place}")
            stepped.append(parameter)
    state = getattr(optimizer, "state", {})
    for place, parameter in enumerate(state):
        if isinstance(parameter, torch.Tensor) and id(parameter) not in own:
            own[id(parameter)] = f"partition {place}"
            stepped.append(parameter)
    for parameter in stepped:
        name = prefix + own[id(parameter)]
        if id(parameter) not in names:
            for tensor in local_tensors(parameter):
                if tensor.numel():
                    whole = tuple(parameter.shape)
                    yield StateTensor("optimizer", "weights", name, tensor, whole, True, _shard_position(parameter))
        values = state.get(parameter) if isinstance(state, Mapping) else None
        for slot, value in values.items() if isinstance(values, Mapping) else ():
            for tensor in local_tensors(value):
                if tensor.numel() > 1:
                    yield StateTensor(
                        "optimizer", str(slot), name, tensor, tuple(value.shape), True, _shard_position(value)
                    )


def _optimizer_steps(optimizer: Any) -> Iterator[float | None]:
    for group in _param_groups(optimizer):
        if isinstance(group.get("step"), int | float):
            yield float(group["step"])
    for values in getattr(optimizer, "state", {}).values():
        step = values.get("step") if isinstance(values, Mapping) else None
        if isinstance(step, int | float):
            yield float(step)
        elif isinstance(step, torch.Tensor):
            (tensor, *_) = (*local_tensors(step), step)
            known = VirtualTensor.virtual_mode.known_values(tensor) if isinstance(tensor, VirtualTensor) else tensor
            yield float(known.reshape(-1)[0].tolist()) if known is not None else None
