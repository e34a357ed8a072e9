"""Attributes memory to modules: parameters, gradients, flat buffers and optimizer states, whatever created them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gonogo.virtual.hooks.modules import ModuleTracker, owns_storage
from gonogo.virtual.memory.owners import Owner, divide_among_modules, owner_of_part, owner_of_positions
from gonogo.virtual.memory.tracking import Cell, MemoryRecord
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor, local_tensors


class StorageOwners:
    """The modules that own tensors, grouped by storage: a view of a buffer owns its range of the buffer."""

    def __init__(self, memory: MemoryRecord) -> None:
        self._memory = memory
        self._ranges: dict[int, tuple[Cell, list[tuple[int, int, str]]]] = {}

    def set_owner(self, tensor: VirtualTensor, owner: Owner) -> None:
        """Set the owner of a tensor."""
        at = int(tensor.storage_offset()) * tensor.element_size()
        nbytes = min(tensor.numel() * tensor.element_size(), tensor.cell.nbytes - at)
        if nbytes <= 0:
            return
        _, ranges = self._ranges.setdefault(id(tensor.cell), (tensor.cell, []))
        for module, count in divide_among_modules(owner, nbytes):
            if module is not None:
                ranges.append((at, at + count, module))
            at += count

    def apply(self) -> None:
        """Apply the owners to the memory record, storage by storage."""
        for cell, ranges in self._ranges.values():
            if ranges:
                self._memory.set_owner(cell, owner_of_positions(ranges, cell.nbytes))


def owner_of(tensor: VirtualTensor) -> Owner:
    """The owner of the tensor's range of its storage, as far as it is known."""
    start = int(tensor.storage_offset()) * tensor.element_size()
    return owner_of_part(tensor.cell.holding.owner, start, start + tensor.numel() * tensor.element_size())


def assign_model_owners(root: nn.Module, modules: ModuleTracker) -> dict[int, str]:
    """Attribute a model's parameters, buffers, partitions and gradients to their modules.

    Returns the module path of each parameter, by the parameter's ``id``.
    """
    placement, paths = StorageOwners(modules.memory), {}
    for module in root.modules():
        path = modules.path_of(module)
        for parameter in module._parameters.values():
            if parameter is not None:
                paths[id(parameter)] = path
                for tensor in _stored_tensors(parameter):
                    placement.set_owner(tensor, path)
        for buffer in module._buffers.values():
            if isinstance(buffer, VirtualTensor):
                placement.set_owner(buffer, path)
    placement.apply()
    return paths


def assign_gathered_owners(module: nn.Module, modules: ModuleTracker, *, recurse: bool) -> None:
    """Attribute what ZeRO-3 has gathered for a module to that module, whichever ran when it was allocated."""
    for part in module.modules() if recurse else (module,):
        for parameter in part._parameters.values():
            for tensor in local_tensors(parameter):
                # Views of larger buffers get their owner from the buffer.
                if (
                    tensor.numel()
                    and owns_storage(tensor)
                    and tensor.cell.holding.owner != (path := modules.path_of(part))
                ):
                    modules.memory.set_owner(tensor.cell, path)


def assign_state_owners(optimizer: Any, memory: MemoryRecord) -> None:
    """Attribute an optimizer's gradients and states to the owners of the parameters."""
    placement = StorageOwners(memory)
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group["params"]:
            for base in local_tensors(parameter):
                assign_elementwise_owner(placement, base, parameter.grad if parameter.is_leaf else None)
    for parameter, state in getattr(optimizer, "state", {}).items():
        if isinstance(state, Mapping) and isinstance(parameter, torch.Tensor):
            for base in local_tensors(parameter):
                for value in state.values():
                    assign_elementwise_owner(placement, base, value)
    placement.apply()


def assign_elementwise_owner(placement: StorageOwners, base: VirtualTensor, value: Any) -> None:
    """Attribute ``value`` to the owners of ``base`` if it has one element for each of ``base``'s."""
    for tensor in local_tensors(value):
        if tensor.numel() == base.numel():
            placement.set_owner(tensor, owner_of(base))


def install(modules: ModuleTracker) -> Callable[[], None]:
    """Attribute DDP's gradient buckets to the modules of their parameters; returns the undo."""
    patches = Patches()
    register: Any = DistributedDataParallel.register_comm_hook

    @functools.wraps(register)
    def register_with_owners(ddp: Any, state: Any, hook: Any) -> Any:
        @functools.wraps(hook)
        def assign_owners_and_reduce(state: Any, bucket: Any) -> Any:
            _assign_bucket_owners(ddp, bucket, modules)
            return hook(state, bucket)

        return register(ddp, state, assign_owners_and_reduce)

    patches.set(DistributedDataParallel, "register_comm_hook", register_with_owners)
    return patches.undo


def _assign_bucket_owners(ddp: nn.Module, bucket: Any, modules: ModuleTracker) -> None:
    (buffer,) = local_tensors(bucket.buffer()) or (None,)
    if buffer is None or buffer.cell.holding.owner is not None:
        return
    placement = StorageOwners(modules.memory)
    paths = {id(p): modules.path_of(module) for module in ddp.modules() for p in module._parameters.values()}
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
        for tensor in local_tensors(gradient):
            placement.set_owner(tensor, paths.get(id(parameter)))
    placement.apply()


def _stored_tensors(parameter: torch.Tensor) -> Iterator[VirtualTensor]:
    """What a rank stores for a parameter: the parameter, its partitions, gradient and quantization scales."""
    yield from local_tensors(parameter)
    for name in ("ds_tensor", "ds_secondary_tensor"):
        yield from local_tensors(getattr(parameter, name, None))
    if parameter.is_leaf:
        yield from local_tensors(parameter.grad)
    quantized = getattr(parameter, "quant_state", None)
    for value in vars(quantized).values() if hasattr(quantized, "__dict__") else ():
        yield from local_tensors(value)
        for inner in vars(value).values() if type(value) is type(quantized) else ():
            yield from local_tensors(inner)
