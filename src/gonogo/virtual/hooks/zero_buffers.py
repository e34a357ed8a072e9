"""DeepSpeed's buffers: their memory category, and the modules that own their ranges.

ZeRO's optimizers concatenate the parameters of a group into a flat buffer, and keep this rank's partition of it in
fp32, with a gradient and states of the same layout. Names are those of DeepSpeed 0.14 to 0.19.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch.distributed as dist

from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.hooks.memory_ownership import (
    StorageOwners,
    assign_elementwise_owner,
    assign_model_owners,
    assign_state_owners,
    owner_of,
)
from gonogo.virtual.hooks.modules import ModuleTracker
from gonogo.virtual.hooks.training import categorise_optimizer_states
from gonogo.virtual.memory.owners import Owner, owner_of_ranges
from gonogo.virtual.tensor import VirtualTensor, local_tensors

_BUFFER_CATEGORIES = {
    "fp16_partitioned_groups_flat": "parameters",
    "lp_param_buffer": "parameters",
    "bit16_groups_flat": "parameters",
    "param_groups_fp16_flat_cpu_memory": "parameters",
    "param_buffer_of_bit16_for_cpu_offload_groups": "parameters",
    "fp32_partitioned_groups_flat": "optimizer",
    "single_partition_of_fp32_groups": "optimizer",
    "fp32_groups_flat_partition": "optimizer",
    "grad_partitions_flat_buffer": "gradients",
    "averaged_gradients": "gradients",
    "all_grad_tensors": "gradients",
    "fp32_groups_gradients_flat_partition": "gradients",
    "ipg_buffer": "communication",
    "ipg_buckets": "communication",
    "ipg_bucket_flat_buffer": "communication",
    "param_id_to_grad_partition": "gradients",
    "temp_grad_buffer_for_cpu_offload": "communication",
    "temp_grad_buffer_for_gpu_offload": "communication",
}
"""Tensor attributes of DeepSpeed's ZeRO and mixed-precision optimizers, with their memory category."""

_PARALLEL_BUFFER_LISTS = (
    ("fp32_groups_gradients_flat", "bf16_groups_flat"),
    ("fp32_groups_flat", "fp16_groups_flat"),
    ("fp32_groups", "fp16_groups"),
    ("param_buffer_of_bit16_for_cpu_offload_groups", "single_partition_of_fp32_groups"),
)
"""Lists of buffers, each with a second list of buffers that has the same layout."""
_PARTITION_ATTRIBUTES = (
    ("single_partition_of_fp32_groups", "parallel_partitioned_bit16_groups"),
    ("fp32_groups_flat_partition", "bf16_partitioned_groups"),
)
"""Lists of this rank's partition of each group, each with a second list of all ranks' partitions."""


def categorise_buffers(engine: Any, lifecycle: Lifecycle) -> None:
    """Set the memory categories of the tensors of the engine's optimizer."""
    optimizer = getattr(engine, "optimizer", None)
    if optimizer is None:
        return
    for attribute, value in vars(optimizer).items():
        category = _BUFFER_CATEGORIES.get(attribute.rpartition("__")[2])  # private names have the class as a prefix
        for tensor in _tensors_in(value) if category is not None else ():
            lifecycle.memory.recategorise(tensor.cell, str(category))
            gradient = tensor.grad if tensor.is_leaf else None
            if isinstance(gradient, VirtualTensor):
                lifecycle.memory.recategorise(gradient.cell, "gradients")
    categorise_optimizer_states(getattr(optimizer, "optimizer", optimizer), lifecycle)


def assign_buffer_owners(engine: Any, modules: ModuleTracker) -> None:
    """Attribute the buffers of the engine's optimizer to the modules whose parameters they consist of."""
    paths = assign_model_owners(engine.module, modules)
    optimizer = getattr(engine, "optimizer", None)
    if optimizer is None:
        return
    placement = StorageOwners(modules.memory)
    made_of = _partition_owners(optimizer), _sub_group_owners(optimizer, paths), _gradient_owners(optimizer, paths)
    for flat, owner in chain(*made_of):
        for tensor in local_tensors(flat):
            placement.set_owner(tensor, owner)
    placement.apply()
    placement = StorageOwners(modules.memory)
    for name, of in _PARALLEL_BUFFER_LISTS:
        for flat, base in zip(
            _optimizer_attribute_tensors(optimizer, name), _optimizer_attribute_tensors(optimizer, of), strict=False
        ):
            assign_elementwise_owner(placement, base, flat)
    for name in ("fp32_partitioned_groups_flat", *(name for name, _ in _PARTITION_ATTRIBUTES)):
        for flat in _optimizer_attribute_tensors(optimizer, name):
            assign_elementwise_owner(placement, flat, flat.grad if flat.is_leaf else None)
    placement.apply()
    assign_state_owners(getattr(optimizer, "optimizer", optimizer), modules.memory)


def _optimizer_attribute_tensors(optimizer: Any, name: str) -> list[VirtualTensor]:
    return _tensors_in(getattr(optimizer, name, None))


def _partition_owners(optimizer: Any) -> Iterator[tuple[Any, Owner]]:
    """Master weights of ZeRO-1, ZeRO-2 and the bf16 optimizer: copies of this rank's partition of a flat buffer."""
    groups = getattr(optimizer, "real_dp_process_group", None)
    for name, of in _PARTITION_ATTRIBUTES:
        kept, everyone = getattr(optimizer, name, None), getattr(optimizer, of, None)
        if groups and kept and everyone:
            for master, partitions, group in zip(kept, everyone, groups, strict=False):
                for mine in local_tensors(partitions[dist.get_rank(group=group)]):
                    yield master, owner_of(mine)


def _sub_group_owners(optimizer: Any, paths: dict[int, str]) -> Iterator[tuple[Any, Owner]]:
    """Master weights of ZeRO-3: each sub-group consists of its parameters' partitions, in order."""
    groups = getattr(optimizer, "fp16_groups", None) or ()
    for name in ("fp32_partitioned_groups_flat", "fp16_partitioned_groups_flat"):
        for flat, group in zip(getattr(optimizer, name, None) or (), groups, strict=False):
            yield flat, owner_of_ranges((_partition_numel(parameter), paths.get(id(parameter))) for parameter in group)


def _partition_numel(parameter: Any) -> int:
    partition = getattr(parameter, "ds_tensor", None)
    return int(getattr(partition, "ds_numel", 0) or (partition.numel() if partition is not None else 0))


def _gradient_owners(optimizer: Any, paths: dict[int, str]) -> Iterator[tuple[Any, Owner]]:
    """Gradients that are stored per parameter."""
    groups = getattr(optimizer, "fp16_groups", None) or getattr(optimizer, "params_in_partition", None) or ()
    by_number = {getattr(parameter, "ds_id", None): paths.get(id(parameter)) for group in groups for parameter in group}
    for attribute, value in vars(optimizer).items():
        if attribute.endswith("__param_id_to_grad_partition"):
            yield from ((gradient, by_number.get(number)) for number, gradient in value.items())
    for name in ("averaged_gradients", "all_grad_tensors"):
        kept = getattr(optimizer, name, None)
        for index, gradients in kept.items() if isinstance(kept, dict) else ():
            if isinstance(gradients, list | tuple) and index < len(groups):
                for gradient, parameter in zip(gradients, groups[index], strict=False):
                    yield gradient, paths.get(id(parameter))
    parameters = getattr(optimizer, "param_dict", None) or {}
    for number, gradient in (getattr(optimizer, "accumulated_grads_in_cpu", None) or {}).items():
        yield gradient, paths.get(id(parameters.get(number)))


def _tensors_in(value: Any, depth: int = 0) -> list[VirtualTensor]:
    if isinstance(value, VirtualTensor):
        return [value]
    if depth > 3:
        return []
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple | set):
        value = [getattr(value, "buffer", None)] if hasattr(value, "buffer") else []
    return [tensor for item in value for tensor in _tensors_in(item, depth + 1)]
