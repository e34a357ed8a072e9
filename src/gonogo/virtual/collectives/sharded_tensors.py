"""DTensor over virtual tensors, as FSDP2 and tensor parallelism use it, and the collectives that it calls.

DTensor's own dispatch runs unchanged: it ends in operators on local tensors and in functional collectives. The latter
are replaced by the corresponding ``torch.distributed`` calls, so that they are recorded like any others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as _distributed

from gonogo.finding import translated
from gonogo.virtual import private
from gonogo.virtual.mode import NAMESPACE_HANDLERS, VirtualMode
from gonogo.virtual.operators.wrapper_subclasses import DEVICE_ATTRIBUTES
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.unsupported import UnsupportedOperator

dist: Any = _distributed


def install() -> Callable[[], None]:
    """Make DTensors report the virtual device that they are on, and record functional collectives; returns the undo."""
    patches = Patches()

    def patch_dtensor(module: ModuleType) -> None:
        owner: Any = module.DTensor

        def own_property(name: str) -> property:
            """The DTensor's own device in C++, which stays as it was made with if its local tensor is moved."""
            inherited = getattr(torch.Tensor, name)
            of_virtual = DEVICE_ATTRIBUTES[name]

            def get_own(tensor: Any) -> Any:
                kind = of_virtual if isinstance(tensor._local_tensor, VirtualTensor) else inherited
                return kind.__get__(tensor)

            return property(get_own)

        for name in ("device", "is_cuda", "is_cpu", "is_meta"):
            patches.set(owner, name, own_property(name))

    def patch_sharding_propagator(module: ModuleType) -> None:
        """Propagate shapes without dispatch modes: the fake tensors used for it aren't the program's."""
        owner: Any = module.ShardingPropagator
        for name in ("_propagate_tensor_meta_non_cached", "_propagate_tensor_meta"):
            if hasattr(owner, name):
                patches.set(owner, name, _without_dispatch_modes(getattr(owner, name)))

    def patch_tensor_rebuild(module: ModuleType) -> None:
        """Build the tensor on the CPU: only its shape matters, and C++ would need a driver to fill a CUDA tensor."""

        def rebuild_on_cpu(spec: Any) -> torch.Tensor:
            meta = spec.tensor_meta
            return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device="cpu")

        patches.set(module, "_rebuild_tensor_from_dtensor_meta", rebuild_on_cpu)

    patches.on_undo(after_import("torch.distributed.tensor._api", patch_dtensor))
    patches.on_undo(after_import("torch.distributed.tensor._sharding_prop", patch_sharding_propagator))
    patches.on_undo(after_import("torch.distributed.tensor._op_schema", patch_tensor_rebuild))
    patches.set_item(NAMESPACE_HANDLERS, "_c10d_functional", _functional_collective)
    return patches.undo


def _without_dispatch_modes(function: Any) -> Any:
    @functools.wraps(function)
    def call_without_modes(*args: Any, **kwargs: Any) -> Any:
        with private.without_dispatch_modes():
            return function(*args, **kwargs)

    return call_without_modes


def _functional_collective(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    name = func._schema.name.rpartition("::")[2]
    given = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | kwargs
    if name == "wait_tensor":
        return args[0]
    if name == "_wrap_tensor_autograd":  # marks pending results; here, collectives complete at once
        with mode:
            return torch.ops.aten.alias(args[0])
    run = _COLLECTIVES.get(name.removesuffix("_coalesced").removesuffix("_coalesced_"))
    if run is None:
        raise UnsupportedOperator(str(func), translated("gonogo does not implement this functional collective"))
    group = private.resolve_process_group(given["group_name"])
    with mode:
        if "coalesced" in name:
            return [run(tensor, {**given, "input": tensor}, group) for tensor in args[0]]
        return run(args[0], given, group)


def _reduce_op(operator_args: dict[str, Any]) -> Any:
    """The ``ReduceOp`` with the given name."""
    name = str(operator_args["reduce_op"]).upper()
    return getattr(dist.ReduceOp, name)


def _all_reduce(tensor: Any, operator_args: dict[str, Any], group: Any) -> Any:
    return _all_reduce_in_place(tensor.clone(), operator_args, group)


def _all_reduce_in_place(tensor: Any, operator_args: dict[str, Any], group: Any) -> Any:
    dist.all_reduce(tensor, _reduce_op(operator_args), group=group)
    return tensor


def _all_gather(tensor: Any, operator_args: dict[str, Any], group: Any) -> Any:
    out = tensor.new_empty((tensor.shape[0] * operator_args["group_size"], *tensor.shape[1:]))
    dist.all_gather_into_tensor(out, tensor.contiguous(), group=group)
    return out


def _reduce_scatter(tensor: Any, operator_args: dict[str, Any], group: Any) -> Any:
    out = tensor.new_empty((tensor.shape[0] // operator_args["group_size"], *tensor.shape[1:]))
    dist.reduce_scatter_tensor(out, tensor.contiguous(), _reduce_op(operator_args), group=group)
    return out


def _all_to_all(tensor: Any, operator_args: dict[str, Any], group: Any) -> Any:
    sizes = operator_args["output_split_sizes"]
    out = tensor.new_empty((sum(sizes), *tensor.shape[1:]))
    dist.all_to_all_single(out, tensor.contiguous(), list(sizes), list(operator_args["input_split_sizes"]), group=group)
    return out


def _broadcast_copy(tensor: Any, operator_args: dict[str, Any], group: Any) -> Any:
    return _broadcast_in_place(tensor.clone(), operator_args, group)


def _broadcast_in_place(tensor: Any, operator_args: dict[str, Any], group: Any) -> Any:
    dist.broadcast(tensor, operator_args["src"], group=group)
    return tensor


_COLLECTIVES: dict[str, Callable[[Any, dict[str, Any], Any], Any]] = {
    "all_reduce": _all_reduce,
    "all_reduce_": _all_reduce_in_place,
    "all_gather_into_tensor": _all_gather,
    "reduce_scatter_tensor": _reduce_scatter,
    "all_to_all_single": _all_to_all,
    "broadcast": _broadcast_copy,
    "broadcast_": _broadcast_in_place,
}
