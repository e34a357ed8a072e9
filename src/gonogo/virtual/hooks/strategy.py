"""The name of the parallelism strategy: ``DeepSpeed ZeRO-3``, ``DeepSpeed ZeRO-3 × Ulysses 4``, ``FSDP2 4 × TP 2``."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from gonogo.finding.as_run import MegatronGroups
from gonogo.virtual.hooks.experts import megatron_expert_parallel

_STRATEGY_BY_WRAPPER = {
    "FSDPModule": "FSDP2",
    "FullyShardedDataParallel": "FSDP",
    "DistributedDataParallel": "DDP",
    "DataParallel": "DataParallel",
}
_MEGATRON_PARALLEL_STATE = "megatron.core.parallel_state"
_MEGATRON_SIZES = (
    ("tensor", "TP", "get_tensor_model_parallel_world_size"),
    ("pipeline", "PP", "get_pipeline_model_parallel_world_size"),
    ("context", "CP", "get_context_parallel_world_size"),
    ("expert", "EP", "get_expert_model_parallel_world_size"),
)
_MESH_DIMENSION_NAMES = (
    ("tp", "TP"),
    ("tensor", "TP"),
    ("ep", "EP"),
    ("expert", "EP"),
    ("cp", "CP"),
    ("context", "CP"),
)
"""The kind of a device mesh's dimension, by a word of its name; other dimensions are data-parallel."""
_DATA_PARALLEL_WORDS = frozenset({"dp", "fsdp", "hsdp", "data", "shard", "replicate"})
"""Words of a data-parallel dimension; ``dp_shard_cp`` is one that was flattened with the context-parallel one."""


def describe_strategy(stage: int | None, root: nn.Module, wrappers: list[nn.Module]) -> str:
    """The name with sizes; empty if each process trains its own model. ``stage``: that of the ZeRO engine."""
    if stage is not None:
        is_pipeline = any(type(module).__name__ == "PipelineModule" for module in (root, *wrappers))
        name = "DeepSpeed" + ",".join([" pipeline"] * is_pipeline + [f" ZeRO-{stage}"] * bool(stage))
        sharing = _ulysses_ranks()
        return f"{name} × Ulysses {sharing}" if sharing > 1 else name
    of_megatron = _megatron_strategy(root, wrappers)
    if of_megatron:
        return of_megatron
    names = {base.__name__ for module in (*wrappers, *root.modules()) for base in type(module).__mro__}
    said = next((said for name, said in _STRATEGY_BY_WRAPPER.items() if name in names), "")
    sizes = _mesh_sizes(root)
    replicas = _replicas(root)
    if said and (sizes or replicas > 1):
        samples = sizes.pop("", 0) or max(math.prod(mesh.shape) for mesh in _device_meshes(root))
        words = [f"HSDP {replicas}", f"{said} {samples // replicas}"] if replicas > 1 else [f"{said} {samples}"]
        return " × ".join([*words, *(f"{name} {size}" for name, size in sizes.items())])
    if not said and "TP" in sizes:
        return " × ".join(f"{name} {size}" for name, size in sizes.items() if name)
    return said or ("TP (DTensor)" if any(_is_sharded(parameter) for parameter in root.parameters()) else "")


def expert_parallel_ranks(root: nn.Module) -> int:
    """Ranks that share the experts: Megatron-Core's or the mesh's EP size; 1 if each rank has all experts."""
    return max(megatron_expert_parallel(), _mesh_sizes(root).get("EP", 1))


def sequence_ranks(root: nn.Module, wrappers: list[nn.Module]) -> int:
    """Ranks that share each sequence: DeepSpeed's Ulysses, Megatron-Core's or the mesh's CP size."""
    groups = megatron_groups(root, wrappers)
    return max(_ulysses_ranks(), groups.context if groups is not None else 1, _mesh_sizes(root).get("CP", 1))


def tensor_ranks(root: nn.Module, wrappers: list[nn.Module]) -> int:
    """Ranks that each run a part of every layer: Megatron-Core's, DeepSpeed AutoTP's or the mesh's TP size."""
    groups = megatron_groups(root, wrappers)
    of_deepspeed = _parallel_size(sys.modules.get("deepspeed.utils.groups"), "get_tensor_model_parallel_world_size")
    return max(of_deepspeed, groups.tensor if groups is not None else 1, _mesh_sizes(root).get("TP", 1))


def megatron_groups(root: nn.Module, wrappers: list[nn.Module]) -> MegatronGroups | None:
    """The sizes of Megatron-Core's groups; None if the model is not wrapped in its DDP or FSDP."""
    config = _megatron_config(root, wrappers)
    state: Any = sys.modules.get(_MEGATRON_PARALLEL_STATE)
    if config is None or state is None:
        return None
    sizes = {kind: _parallel_size(state, function) for kind, _, function in _MEGATRON_SIZES}
    return MegatronGroups(
        data=_parallel_size(state, "get_data_parallel_world_size"),
        distributed_optimizer=bool(getattr(config, "use_distributed_optimizer", False)),
        **sizes,
    )


def _megatron_strategy(root: nn.Module, wrappers: list[nn.Module]) -> str:
    """Megatron-Core's groups, if the model is wrapped in its DDP or FSDP."""
    groups = megatron_groups(root, wrappers)
    if groups is None:
        return ""
    config = _megatron_config(root, wrappers)
    sizes = [("FSDP" if getattr(config, "use_megatron_fsdp", False) else "DDP", groups.data)]
    sizes += [(word, size) for kind, word, _ in _MEGATRON_SIZES if (size := getattr(groups, kind)) > 1]
    parts = [" × ".join(f"{word} {size}" for word, size in sizes)]
    stages = _parallel_size(sys.modules[_MEGATRON_PARALLEL_STATE], "get_virtual_pipeline_model_parallel_world_size")
    if stages > 1:
        parts.append(f"{stages} virtual stages")
    if groups.distributed_optimizer:
        parts.append("distributed optimizer")
    return ", ".join(parts)


def _megatron_config(root: nn.Module, wrappers: list[nn.Module]) -> Any:
    found = (getattr(module, "ddp_config", None) for module in (root, *wrappers))
    return next((config for config in found if config is not None), None)


def _parallel_size(state: Any, function: str) -> int:
    """The result of a function of Megatron-Core or DeepSpeed; 1 if it doesn't exist or has no group yet."""
    try:
        found = getattr(state, function)()
    except (AttributeError, AssertionError):
        return 1
    return found if isinstance(found, int) else 1


def _ulysses_ranks() -> int:
    """Ranks that share each sequence under DeepSpeed."""
    return _parallel_size(sys.modules.get("deepspeed.utils.groups"), "_get_sequence_parallel_world_size")


def _mesh_sizes(root: nn.Module) -> dict[str, int]:
    """Sizes by kind for a mesh with several dimensions in use, data parallelism first; else empty."""
    meshes = {id(mesh): mesh for mesh in _device_meshes(root)}
    sizes: dict[str, int] = {}
    for mesh in meshes.values():
        own: dict[str, int] = {}
        for name, size in _named_dimensions(mesh):
            words = _split_dimension_name(name)
            if _DATA_PARALLEL_WORDS & words:
                within = {kind: _size_in_root(mesh, kind) for kind in _parallelism_kinds(words)}
                own |= within
                own[""] = own.get("", 1) * max(1, size // math.prod(within.values()))
            else:
                kind = next(iter(_parallelism_kinds(words)), "")
                own[kind] = own.get(kind, 1) * size
        sizes |= {kind: max(size, sizes.get(kind, 1)) for kind, size in own.items()}
    model_parallel = {kind: size for kind, size in sizes.items() if kind and size > 1}
    return {"": sizes.get("", 1), **model_parallel} if model_parallel else {}


def _replicas(root: nn.Module) -> int:
    """Groups of ranks that each hold all of a sharded parameter (HSDP), not counting those of model parallelism."""
    found = 1
    for parameter in root.parameters():
        mesh, placements = getattr(parameter, "device_mesh", None), getattr(parameter, "placements", ())
        if mesh is None or not any(placement.is_shard() for placement in placements):
            continue
        dimensions = zip(_named_dimensions(mesh), placements, strict=False)
        copies = math.prod(
            size
            for (name, size), placement in dimensions
            if placement.is_replicate() and not _parallelism_kinds(_split_dimension_name(name))
        )
        found = max(found, copies)
    return found


def _named_dimensions(mesh: Any) -> list[tuple[str, int]]:
    return list(zip(getattr(mesh, "mesh_dim_names", None) or (), mesh.shape, strict=False))


def _split_dimension_name(name: str) -> frozenset[str]:
    return frozenset(name.lower().replace("-", "_").split("_"))


def _parallelism_kinds(words: frozenset[str]) -> list[str]:
    return [kind for word, kind in _MESH_DIMENSION_NAMES if word in words]


def _size_in_root(mesh: Any, kind: str) -> int:
    """The size of the dimension of that kind in the mesh from which this one was taken; 1 if it has none."""
    root = getattr(mesh, "_get_root_mesh", lambda: mesh)()
    dimensions = ((_split_dimension_name(name), size) for name, size in _named_dimensions(root))
    return math.prod(
        size for words, size in dimensions if kind in _parallelism_kinds(words) and not _DATA_PARALLEL_WORDS & words
    )


def _device_meshes(root: nn.Module) -> Iterator[Any]:
    for parameter in root.parameters():
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None:
            yield mesh


def _is_sharded(parameter: torch.Tensor) -> bool:
    """Whether it is a DTensor of which each rank holds only a part."""
    return any(placement.is_shard() for placement in getattr(parameter, "placements", ()))
