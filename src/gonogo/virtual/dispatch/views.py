"""Views of another tensor's storage; their layout depends on the operator, its base's layout and its arguments.

The first such call runs the operator; later ones create the view directly, without the operator. This is three times
as fast, and most of a program's operators are views.
"""

from __future__ import annotations

from typing import Any

import torch

from gonogo.virtual import private
from gonogo.virtual.dispatch.schema import Operator
from gonogo.virtual.tensor import MetaKernelState, Spec, make_alias

_ABSOLUTE_OFFSET_OPERATORS = {torch.ops.aten.as_strided.default}
"""Operators whose result's offset is an argument; that of others is their base's plus a constant."""


class ViewCache:
    """A cache of the sizes and strides of views, by operator and arguments."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Spec, int]] = {}

    def view_of(self, operator: Operator, args: Any) -> Any:
        """The result of an operator that returns a view of its first argument, and takes no other tensor."""
        base = args[0]
        key = (operator, base.spec, *[tuple(value) if type(value) is list else value for value in args[1:]])
        known = self._known.get(key)
        if known is None:
            return self._make_first_view(operator, args, key)
        spec, shift = known
        with private.DisableTorchDispatch():
            raw = base
            if shift or spec is not base.spec:
                raw = private.as_strided(base, spec.shape, spec.strides, base.storage_offset() + shift)
            return make_alias(raw, base, spec)

    def _make_first_view(self, operator: Operator, args: Any, key: Any) -> Any:
        base = args[0]
        raw = run_native_view(operator.func, args, {})
        if type(raw) is not torch.Tensor:
            return type(raw)(make_alias(item, base) for item in raw)
        view = make_alias(raw, base)
        moves_only = raw.dtype == base.dtype and raw.is_conj() == base.is_conj() and raw.is_neg() == base.is_neg()
        if moves_only and operator.func not in _ABSOLUTE_OFFSET_OPERATORS:
            self._known[key] = (view.spec, raw.storage_offset() - base.storage_offset())
        return view


def run_native_view(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run the C++ meta kernel on the virtual tensors themselves, so that the result shares their storage."""
    MetaKernelState.running = True
    try:
        with private.DisableTorchDispatch():
            return func(*args, **kwargs)
    finally:
        MetaKernelState.running = False
