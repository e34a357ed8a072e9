"""Saving sharded states if only some of the ranks are rehearsed, so that the other ranks' shards are unknown.

A rank that is not rehearsed is assumed to send the same objects as this one, which for shards means the same shard
over and over: the coordinator of ``torch.distributed.checkpoint``, which gathers every rank's plan, would report the
rest of each tensor as missing; FSDP, whose ranks exchange for which parameters they have optimizer states, would miss
the rest.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import Executor, Future
from types import ModuleType
from typing import Any, ClassVar

import torch

from gonogo.virtual.collectives.peers import Peers
from gonogo.virtual.memory.shared_memory import SharedMemory
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor

_STAGER_MODULE = "torch.distributed.checkpoint._state_dict_stager"
_THREAD_EXECUTOR_MODULE = "torch.distributed.checkpoint._async_thread_executor"


def install(peers: Peers | None, world_size: int) -> Callable[[], None]:
    """Accept the missing shards of ranks that aren't rehearsed; returns the undo."""
    patches = Patches()
    if (len(peers.ranks) if peers is not None else 1) < world_size:
        plans = after_import(
            "torch.distributed.checkpoint.default_planner", functools.partial(_patch_plan_creation, patches)
        )
        states = after_import(
            "torch.distributed.fsdp._optim_utils", functools.partial(_patch_optimizer_states, patches)
        )
        patches.on_undo(plans)
        patches.on_undo(states)
    return patches.undo


def _patch_plan_creation(patches: Patches, module: ModuleType) -> None:
    """Accept a global plan that PyTorch would reject as incomplete."""
    owner: Any = module.DefaultSavePlanner
    create = owner.create_global_plan

    @functools.wraps(create)
    def create_global_plan(planner: Any, all_plans: list[Any]) -> Any:
        try:
            return create(planner, all_plans)
        except ValueError:
            known = _deduplicate_plans(all_plans)
        unchecked = Patches()
        unchecked.set(module, "_validate_global_plan", _accept_plan(module))
        try:
            return create(planner, known)
        finally:
            unchecked.undo()

    patches.set(owner, "create_global_plan", create_global_plan)


def _accept_plan(module: ModuleType) -> Callable[..., Any]:
    """A validator that always succeeds, in the form of this release: True, or an empty list of errors."""
    validate: Any = module._validate_global_plan
    return lambda *args: True if isinstance(validate(*args), bool) else []


def _deduplicate_plans(plans: list[Any]) -> list[Any]:
    """The plans, one per rank; those equal to an earlier rank's are emptied."""
    known: list[Any] = []
    for plan in plans:
        known.append(dataclasses.replace(plan, items=[]) if plan in known else plan)
    return known


def _patch_optimizer_states(patches: Patches, module: Any) -> None:
    """Add the optimizer state keys that other ranks have for the rest of a flat parameter."""
    map_keys = module._map_param_key_to_optim_keys
    gather_info = getattr(module, "_allgather_state_info", None)  # torch 2.1 doesn't have it

    @functools.wraps(map_keys)
    def map_keys_of_all_ranks(
        states: Any, group: Any, parameters: Any, names: Any, infos: Any, merge_keys: bool = False
    ) -> tuple[list[Any], Any]:
        keys, mine = map_keys(states, group, parameters, names, infos, merge_keys)
        if merge_keys and keys:
            others = {
                module._OptimStateKey(unflat_param_names=(name,), is_fsdp_managed=True)
                for info in infos.values()
                for name, index in info.param_indices.items()
                if info.param_requires_grad[index]
            }
            keys = sorted({*keys, *others})
        return keys, mine

    patches.set(module, "_map_param_key_to_optim_keys", map_keys_of_all_ranks)
    if gather_info is None:
        return

    @functools.wraps(gather_info)
    def gather_info_of_all_ranks(fsdp_state: Any, input_states: Any) -> list[dict[str, Any]]:
        gathered: list[dict[str, Any]] = gather_info(fsdp_state, input_states)
        some = next((info for info in gathered[fsdp_state.rank].values() if info.tensors), None)
        for rank, infos in enumerate(gathered):
            if rank != fsdp_state.rank and some is not None:
                infos.update({name: some for name, info in infos.items() if not info.tensors})
        return gathered

    patches.set(module, "_allgather_state_info", gather_info_of_all_ranks)


def install_staging() -> Callable[[], None]:
    """Support ``torch.distributed.checkpoint.async_save``, which first copies the state to host memory by storages
    and attributes.

    The copier traverses a tensor's attributes and storage, which for a virtual tensor are gonogo's. Its result is the
    same here: a tensor in host memory, pinned if the copier pins, with the program's attributes.

    Then a thread would save, and gather the other ranks' plans there; but the exchange with other ranks belongs to
    the main thread. So the save runs synchronously where it was requested, which is the same place on all ranks.

    Copies virtual tensors as tensors, and makes the save synchronous; returns the undo.
    """
    patches = Patches()
    patches.on_undo(after_import(_STAGER_MODULE, functools.partial(_patch_stager, patches)))
    patches.on_undo(after_import(_THREAD_EXECUTOR_MODULE, functools.partial(_use_inline_executor, patches)))
    return patches.undo


class InlineExecutor(Executor):
    """Runs submitted functions immediately, or when ``defer`` says."""

    defer: ClassVar[Callable[[Callable[[], Any]], Future[Any]] | None] = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A completed future with what the function returned or raised."""
        if InlineExecutor.defer is not None:
            return InlineExecutor.defer(functools.partial(function, *args, **kwargs))
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _use_inline_executor(patches: Patches, module: ModuleType) -> None:
    owner: Any = getattr(module, "_ThreadBasedAsyncCheckpointExecutor", None)
    if owner is None:
        return
    make = owner.__init__

    @functools.wraps(make)
    def init_with_inline_executor(executor: Any, *args: Any, **kwargs: Any) -> None:
        make(executor, *args, **kwargs)
        if isinstance(getattr(executor, "_executor", None), Executor):
            executor._executor.shutdown(wait=False)
            executor._executor = InlineExecutor()

    patches.set(owner, "__init__", init_with_inline_executor)


def _patch_stager(patches: Patches, module: ModuleType) -> None:
    owner: Any = module.StateDictStager
    original = getattr(owner, "_offload_tensor", None)
    if original is None:
        return

    @functools.wraps(original)
    def offload_tensor(
        stager: Any, tensor: torch.Tensor, memo: dict[int, Any], non_blocking: bool = False
    ) -> torch.Tensor:
        if not isinstance(tensor, VirtualTensor):
            staged: torch.Tensor = original(stager, tensor, memo, non_blocking)
            return staged
        size = tensor.numel() * tensor.element_size()
        pinned = bool(stager.pin_memory and size and size >= getattr(stager, "pin_memory_min_bytes", 0))
        copy: Any = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)
        if getattr(stager, "share_memory", False):
            SharedMemory.add(copy.cell)
        memo[id(tensor)] = copy.copy_(tensor.detach(), non_blocking=non_blocking)
        for name, value in vars(tensor).items():
            setattr(copy, name, stager.deepcopy_with_tensor_offload(value, memo, non_blocking=non_blocking))
        whole: torch.Tensor = copy
        return whole

    patches.set(owner, "_offload_tensor", offload_tensor)
