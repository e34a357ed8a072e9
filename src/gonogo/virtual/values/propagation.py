"""Value propagation: computes results from known operands, and tracks what becomes unknown."""

from __future__ import annotations

from typing import Any

import torch

from gonogo.virtual.dispatch.schema import Operator
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.values import contents, signs
from gonogo.virtual.values.assumptions import FINITE_ASSUMPTION, Ledger
from gonogo.virtual.values.value_trace import ValueTrace

aten = torch.ops.aten
_ABSORBING_VALUES = {
    aten.bitwise_and.Tensor: False, aten.bitwise_and_.Tensor: False, aten.logical_and.default: False,
    aten.logical_and_.default: False, aten.bitwise_or.Tensor: True, aten.bitwise_or_.Tensor: True,
    aten.logical_or.default: True, aten.logical_or_.default: True,
}  # fmt: skip
"""The operand that decides the result of a logical operator on its own."""


def propagate_values(
    ledger: Ledger, operator: Operator, args: Any, kwargs: Any, tensors: list[VirtualTensor], out: Any
) -> None:
    """Compute the results' values if those of all operands are known; otherwise mark what became unknown."""
    for tensor in tensors:
        if tensor.cell.values is None:
            break
    else:
        if tensors or operator.known_factory or operator.of_numbers:
            _propagate_known(operator, args, kwargs, tensors, out)
            if any(tensor.cell.chosen for tensor in tensors):
                propagate_choice(out)
                propagate_choice(_written_tensors(operator, args, kwargs))
        return
    if operator.write_names:
        _forget_written(operator, args, kwargs)
    elif operator.known_factory:
        _propagate_known(operator, args, kwargs, [], out)
    elif operator.compares and out.__class__ is VirtualTensor:
        test = contents.assumed_finiteness(operator.func, args)
        if test is not None:
            ledger.assume(FINITE_ASSUMPTION, "finite")
        else:
            test = signs.compare_by_sign(operator.func, args)
        if test is not None:
            contents.set_uniform(out, test)
    if operator.func in _ABSORBING_VALUES:
        _propagate_absorbed(operator, tensors, out)
    is_small = out.__class__ is not VirtualTensor or out.cell.nbytes <= signs.MAX_STORAGE_BYTES
    if is_small and tensors and tensors[0].numel():
        signs.record_sign(operator.name, args, tensors, out)


def propagate_choice(out: Any) -> None:
    """Mark values computed from selections by unknown scores: on the accelerator, they may differ."""
    for tensor in out if isinstance(out, list | tuple) else (out,):
        if isinstance(tensor, VirtualTensor):
            tensor.cell.chosen = True


def _propagate_absorbed(operator: Operator, tensors: list[VirtualTensor], out: Any) -> None:
    """Apply ``unknown & False`` and ``unknown | True``: a generation loop ends at its limit whatever was
    generated."""
    if out.dtype is not torch.bool or out.numel() != out.cell.nbytes:  # only part of a storage was written
        return
    absorbs = _ABSORBING_VALUES[operator.func]
    combine = _all_true if absorbs else _all_false
    for tensor in tensors:
        known = contents.peek_values(tensor) if tensor.dtype is torch.bool else None
        if known is None:
            continue
        if ValueTrace.now is not None:
            ValueTrace.now.record_test(known, combine)
        if combine(known):
            contents.set_uniform(out, absorbs)
            return


def _all_true(values: torch.Tensor) -> bool:
    return bool(values.all())


def _all_false(values: torch.Tensor) -> bool:
    return not values.any()


def _propagate_known(operator: Operator, args: Any, kwargs: Any, tensors: list[VirtualTensor], out: Any) -> None:
    func = operator.func
    if operator.known_factory and isinstance(out, VirtualTensor):
        if operator.uniform is not None or operator.fills:
            contents.set_uniform(
                out, operator.uniform if operator.uniform is not None else _fill_value(operator, args, kwargs)
            )
            return
        if operator.is_empty:
            if out.cell.nbytes <= contents.EMPTY_LIMIT_BYTES:
                contents.set_uniform(out, 0)
            return
        if out.cell.nbytes > contents.max_known_bytes(out._device) or (tensors == [] and _has_tensor(args)):
            return
    if operator.write_names and not all(contents.expand_for_write(t) for t in _written_tensors(operator, args, kwargs)):
        _forget_written(operator, args, kwargs)
        return
    known = contents.compute_values(func, args, kwargs, _total_numel(out), tensors)
    if operator.write_names:
        if known is None:
            _forget_written(operator, args, kwargs)
        return
    if known is None:
        return
    outs, reals = (list(out), list(known)) if isinstance(out, list | tuple) else ([out], [known])
    for virtual, value in zip(outs, reals, strict=True):
        if not isinstance(virtual, VirtualTensor) or not isinstance(value, torch.Tensor):
            continue
        if value.dtype == virtual.dtype and value.numel() == virtual.numel():
            contents.set_values(
                virtual, value if value.dim() == virtual.dim() else _reshape_values(value, virtual.shape)
            )


def _reshape_values(value: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Reshape the values; a uniform tensor or scalar is expanded to the shape instead."""
    return value.reshape(shape) if any(value.stride()) else value.reshape(-1)[0].expand(shape)


def _forget_written(operator: Operator, args: Any, kwargs: Any) -> None:
    for tensor in _written_tensors(operator, args, kwargs):
        tensor.cell.values = None


def _fill_value(operator: Operator, args: Any, kwargs: Any) -> Any:
    position = next(i for i, a in enumerate(operator.func._schema.arguments) if a.name == "fill_value")
    return args[position] if position < len(args) else kwargs["fill_value"]


def _total_numel(out: Any) -> int:
    if isinstance(out, VirtualTensor):
        return out.numel()
    return sum(_total_numel(item) for item in out) if isinstance(out, list | tuple) else 0


def _has_tensor(args: Any) -> bool:
    return any(isinstance(value, VirtualTensor) for value in args)


def _written_tensors(operator: Operator, args: Any, kwargs: Any) -> list[VirtualTensor]:
    found: list[VirtualTensor] = []
    for value in [args[i] for i in operator.writes if i < len(args)] + [
        kwargs[name] for name in operator.write_names if name in kwargs
    ]:
        found += [value] if isinstance(value, VirtualTensor) else []
        if isinstance(value, list | tuple):
            found += [item for item in value if isinstance(item, VirtualTensor)]
    return found
