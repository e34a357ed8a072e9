"""Memory of compiled functions: as the compiler plans it, or as written where that can't be had.

A compiled function that is called without gradients (in an autograd function, for example) runs as written, but what it
allocates counts only when it has run. If it would take notably more as written than what is left afterwards, Inductor
plans its recorded operators (``compiler_plan.py``), and the plan's buffers count; otherwise, and where Inductor can't
plan it, all that was allocated counts in the same order.

One thing counts as written too, copies of inputs that are written to by index: the compiler functionalizes a function,
and reintroduces in-place writes at its end. A write by index (``index_put_``, ``scatter_``) to an input is done in
place if it is the last write to that input; if another one follows, it goes to a copy of the whole input, which lives
until the function ends: ``reinplace_inplaceable_ops_core`` in torch/_inductor/fx_passes/reinplace.py requires that the
final ``copy_`` to the input takes this very result. Megatron-Core's fused cross entropy does this in its backward: one
copy of the logits in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from weakref import ref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from gonogo.virtual.memory.deferred import DeferredStorages, Event, deferred_storages, replay
from gonogo.virtual.operators.compiler_plan import RecordedCode, RecordedOperator, Reference, TensorLayout, plan
from gonogo.virtual.tensor import VirtualTensor

aten = torch.ops.aten
_INDEXED_WRITES = {
    aten.index_put_, aten._index_put_impl_, aten.scatter_, aten.scatter_add_, aten.scatter_reduce_, aten.index_add_,
    aten.index_copy_, aten.index_fill_,
}  # fmt: skip
_RECORDED = "_recorded_in_region"
"""Attribute of a tensor: the recorder that has seen it, and its number there."""
_NOTABLE_SHARE = 512
"""A function is planned if as written it takes more than a device's memory divided by this."""


def run_compiled_region(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Call a compiled function; nested compiled functions are part of its region."""
    if _InputWriteTracker.inside or not torch._C._len_torch_dispatch_stack():
        return function(*args, **kwargs)
    _InputWriteTracker.inside = True
    try:
        if torch.is_grad_enabled() or VirtualTensor.accelerator_type != "cuda":
            with _InputWriteTracker(args, kwargs):
                return function(*args, **kwargs)
        return _run_planned(function, args, kwargs)
    finally:
        _InputWriteTracker.inside = False


def _run_planned(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    memory = VirtualTensor.virtual_mode.memory
    recorder = OperatorRecorder()
    deferred: list[DeferredStorages] = []
    try:
        with deferred_storages(memory, deferred), recorder, _InputWriteTracker(args, kwargs):
            result = function(*args, **kwargs)
        for storages in deferred:
            device = torch.device(storages.record.name)
            replay(_planned(recorder, storages, device) or storages.events, memory, device)
        return result
    finally:
        for storages in deferred:
            storages.count_live()


def _planned(recorder: OperatorRecorder, storages: DeferredStorages, device: torch.device) -> list[Event] | None:
    """The compiler's plan, if it matters and can be had."""
    if storages.extra_bytes() <= storages.record.total_bytes // _NOTABLE_SHARE:
        return None
    code = recorder.code()
    return None if code is None else _plan_once(code, device)


_PLANS: dict[str, list[Event] | None] = {}


def _plan_once(code: RecordedCode, device: torch.device) -> list[Event] | None:
    key = repr(code)
    if key not in _PLANS:
        try:
            _PLANS[key] = plan(code, torch.cuda.get_device_properties(device))
        except Exception:  # Inductor's private interfaces: any release may lack one, or refuse an operator
            _PLANS[key] = None
    return _PLANS[key]


class OperatorRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operators of a function, for the compiler."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operators: list[RecordedOperator] = []
        self._inputs: list[tuple[int, TensorLayout]] = []
        self._count = 0
        self._made: dict[int, tuple[ref[Any], int]] = {}
        """By storage, for those that the function allocated: the first tensor of each."""
        self._is_plain = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        references, named = tree_map(self._reference, (args, kwargs)) if self._is_plain else ((), {})
        out = func(*args, **kwargs)
        if self._is_plain:
            results = tuple(map(self._result, out if isinstance(out, list | tuple) else [out]))
            self._operators.append(RecordedOperator(func, references, named, results))
        return out

    def _reference(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            self._is_plain &= not isinstance(value, torch.Generator)
            return value
        number = self._number(value)
        if number is None:
            number = self._add(value)
            if type(value) is not VirtualTensor or self._has_made(value):
                self._is_plain = False
            else:
                self._inputs.append((number, _layout(value)))
        return Reference(number)

    def _result(self, value: Any) -> int | None:
        if not isinstance(value, torch.Tensor):
            return None
        number = self._number(value)
        if number is None:
            number = self._add(value)
            if type(value) is not VirtualTensor:
                self._is_plain = False
            elif value.cell.address < 0 and not self._has_made(value):  # the function has allocated it
                self._made[id(value.cell)] = ref(value.cell), number
        return number

    def _number(self, tensor: torch.Tensor) -> int | None:
        by, number = tensor.__dict__.get(_RECORDED, (None, 0))
        return number if by is self else None

    def _add(self, tensor: torch.Tensor) -> int:
        self._count += 1
        tensor.__dict__[_RECORDED] = self, self._count  # an attribute keeps nothing alive, and outlives no tensor
        return self._count

    def _has_made(self, tensor: VirtualTensor) -> bool:
        made = self._made.get(id(tensor.cell))
        return made is not None and made[0]() is tensor.cell

    def code(self) -> RecordedCode | None:
        """What was recorded, once nothing is held here; None where the compiler would not see these operators."""
        if not self._is_plain:
            return None
        results = tuple(sorted(number for cell, number in self._made.values() if cell() is not None))
        return RecordedCode(tuple(self._inputs), tuple(self._operators), results)


def _layout(tensor: VirtualTensor) -> TensorLayout:
    return TensorLayout(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor._device)


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
