"""Additional memory of compiled functions: copies of inputs that are written to by index.

The compiler functionalizes a function, and reintroduces in-place writes at its end. A write by index (``index_put_``,
``scatter_``) to an input is done in place if it is the last write to that input; if another one follows, it goes to
a copy of the whole input, which lives until the function ends: ``reinplace_inplaceable_ops_core`` in
torch/_inductor/fx_passes/reinplace.py requires that the final ``copy_`` to the input takes this very result.
Megatron-Core's fused cross entropy does this in its backward: one copy of the logits in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gonogo.virtual.tensor import VirtualTensor

aten = torch.ops.aten
_INDEXED_WRITES = {
    aten.index_put_, aten._index_put_impl_, aten.scatter_, aten.scatter_add_, aten.scatter_reduce_, aten.index_add_,
    aten.index_copy_, aten.index_fill_,
}  # fmt: skip


def run_compiled_region(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Call a compiled function; nested compiled functions are part of its region."""
    if _InputWriteTracker.inside or not torch._C._len_torch_dispatch_stack():
        return function(*args, **kwargs)
    _InputWriteTracker.inside = True
    try:
        with _InputWriteTracker(args, kwargs):
            return function(*args, **kwargs)
    finally:
        _InputWriteTracker.inside = False


class _InputWriteTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tracks the writes to a function's inputs while it runs."""

    inside: ClassVar[bool] = False

    def __init__(self, args: Any, kwargs: dict[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, VirtualTensor)]
        self._inputs = {id(tensor.cell): tensor.cell for tensor in given}
        self._written: dict[int, torch.Tensor | None] = {}
        """Inputs that were written by index, with the copy that exists once another write has followed."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable and args and isinstance(args[0], VirtualTensor):
            self._note_write(func.overloadpacket, args[0])
        return func(*args, **(kwargs or {}))

    def _note_write(self, operator: Any, target: VirtualTensor) -> None:
        place = id(target.cell)
        if self._written.get(place, target) is None:
            whole = (target.cell.nbytes,)
            self._written[place] = torch.empty(whole, dtype=torch.uint8, device=target.device)
        elif place in self._inputs and operator in _INDEXED_WRITES:
            self._written.setdefault(place, None)
