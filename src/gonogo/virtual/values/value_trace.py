"""Decides whether the program would behave the same with another batch, by tracing what depends on a batch's values.

While a batch is traced, each operator that computes on its values is recorded, and each value that other code reads.
The same operations are replayed on another batch: if everything that is read has the same value, the program can't
behave differently because of the batch. Values are kept in real storages, so a variable's name is stored on its
storage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from gonogo.virtual import private
from gonogo.virtual.values import real

_VARIABLE_ATTRIBUTE = "_gonogo_variable"
_SMALL, _LARGE = 64 << 10, 8 << 20
"""Constants up to the first size are copied; writing to larger ones than the second ends the trace."""


class _StorageView(NamedTuple):
    """A tensor as a view of a variable's storage."""

    variable: int
    dtype: torch.dtype
    offset: int
    shape: torch.Size
    strides: tuple[int, ...]


class _DifferentValues(Exception):
    """Raised if the other batch's values lead to a different result."""


class ValueTrace:
    """The operations on a batch's values; ``with trace:`` wraps the code that uses the batch."""

    now: ClassVar[ValueTrace | None] = None

    def __init__(self, batch: Sequence[torch.Tensor]) -> None:
        """``batch``: the real tensors whose values are traced."""
        self.ended = not _are_storages_persistent()
        """True once the trace can no longer tell what depends on the values."""
        self._count = 0
        self._steps: list[Callable[[dict[int, Any]], None]] = []
        self._inputs = [self._variable_view(tensor) for tensor in batch]

    def __enter__(self) -> ValueTrace:
        ValueTrace.now = self
        return self

    def __exit__(self, *exception: object) -> None:
        ValueTrace.now = None

    def has_same_reads_for(self, batch: Sequence[torch.Tensor]) -> bool:
        """True if everything that was read has the same value for this batch, which has the same shapes. Writes to
        nothing."""
        if self.ended:
            return False
        values: dict[int, Any] = {}
        with private.without_dispatch_modes(), torch.no_grad():
            for part, tensor in zip(self._inputs, batch, strict=True):
                copy = real.empty(tensor.untyped_storage().nbytes(), dtype=torch.uint8).untyped_storage()
                copy.copy_(tensor.untyped_storage())
                values[part.variable] = copy
            try:
                for step in self._steps:
                    step(values)
            except Exception:  # an operator may reject the other batch's values
                return False
        return True

    # -- called while the batch is traced ----------------------------------------------------------------------------

    def run_and_record(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator on real tensors, and record it if it uses values of the batch."""
        operands = _nested_tensors((*args, *kwargs.values()))
        if not any(self._variable_number(tensor) is not None for tensor in operands):
            return func(*args, **kwargs)
        writes = func._schema.is_mutable
        noted_args, noted_kwargs = self._record_arguments(args, writes), self._record_arguments(kwargs, writes)
        result = func(*args, **kwargs)
        outputs = [
            (self._view_of_variable(tensor) is None, self._variable_view(tensor))
            for tensor in _nested_tensors((result,))
        ]

        def replay_call(values: dict[int, Any]) -> None:
            made = _nested_tensors(
                (func(*_substitute_values(noted_args, values), **_substitute_values(noted_kwargs, values)),)
            )
            for (is_new, part), tensor in zip(outputs, made, strict=True):
                if tensor.shape != part.shape:
                    raise _DifferentValues
                if is_new:
                    if (tensor.stride(), tensor.storage_offset()) != (part.strides, part.offset):
                        raise _DifferentValues
                    values[part.variable] = tensor.untyped_storage()

        self._steps.append(replay_call)
        return result

    def record_copy(self, copy: torch.Tensor, source: torch.Tensor) -> None:
        """Record that ``copy``, just created, has the values of ``source`` in another layout."""
        part = self._view_of_variable(source)
        if part is None:
            return
        made = self._variable_view(copy)
        nbytes = copy.untyped_storage().nbytes()

        def replay_copy(values: dict[int, Any]) -> None:
            values[made.variable] = real.empty(nbytes, dtype=torch.uint8).untyped_storage()
            _make_view(made, values).copy_(_make_view(part, values))

        self._steps.append(replay_copy)

    def record_test(self, values: torch.Tensor, test: Callable[[torch.Tensor], object]) -> None:
        """Record that ``test`` was applied to the values."""
        part = self._view_of_variable(values)
        if part is None:
            return
        answer = test(values)

        def replay_test(known_values: dict[int, Any]) -> None:
            if test(_make_view(part, known_values)) != answer:
                raise _DifferentValues

        self._steps.append(replay_test)

    def record_read(self, values: torch.Tensor) -> None:
        """Record that code outside has read the values, with which it may do anything, including writing to them."""
        part = self._view_of_variable(values)
        if part is None:
            return
        if values.numel() * values.element_size() > _LARGE:
            self.ended = True
            return
        before = values.clone()

        def check_known_values(known_values: dict[int, Any]) -> None:
            if not torch.equal(_make_view(part, known_values), before):
                raise _DifferentValues

        self._steps.append(check_known_values)

    # -- variables -----------------------------------------------------------------------------------------------------

    def _variable_number(self, tensor: torch.Tensor) -> int | None:
        trace, number = getattr(tensor.untyped_storage(), _VARIABLE_ATTRIBUTE, (None, 0))
        return number if trace is self else None

    def _view_of_variable(self, tensor: torch.Tensor) -> _StorageView | None:
        variable = self._variable_number(tensor)
        return None if variable is None else _view_of_storage_variable(variable, tensor)

    def _variable_view(self, tensor: torch.Tensor) -> _StorageView:
        """The tensor as a view of its variable; its storage becomes a variable if it is none yet."""
        variable = self._variable_number(tensor)
        if variable is None:
            variable = self._count
            self._count += 1
            setattr(tensor.untyped_storage(), _VARIABLE_ATTRIBUTE, (self, variable))
        return _view_of_storage_variable(variable, tensor)

    def _record_arguments(self, value: Any, is_written: bool) -> Any:
        """Arguments with tensors replaced by views of variables, or by copies if they don't depend on the batch."""
        if isinstance(value, torch.Tensor):
            part = self._view_of_variable(value)
            if part is not None:
                return part
            return self._written_variable(value) if is_written else _constant(value)
        if isinstance(value, dict):
            return {name: self._record_arguments(item, is_written) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._record_arguments(item, is_written) for item in value)
        return value

    def _written_variable(self, tensor: torch.Tensor) -> _StorageView:
        """Make a tensor that may receive values of the batch a variable, with its current contents as initial
        value."""
        storage = tensor.untyped_storage()
        part = self._variable_view(tensor)
        if storage.nbytes() > _LARGE:
            self.ended = True
            return part
        before = storage.clone()  # type: ignore[no-untyped-call]

        def replay_initial_contents(values: dict[int, Any]) -> None:
            values[part.variable] = before.clone()

        self._steps.append(replay_initial_contents)
        return part


def _view_of_storage_variable(variable: int, tensor: torch.Tensor) -> _StorageView:
    return _StorageView(variable, tensor.dtype, int(tensor.storage_offset()), tensor.shape, tensor.stride())


def _make_view(part: _StorageView, values: dict[int, Any]) -> torch.Tensor:
    empty: torch.Tensor = real.empty(0, dtype=part.dtype)
    return empty.set_(values[part.variable], part.offset, part.shape, part.strides)


def _substitute_values(value: Any, values: dict[int, Any]) -> Any:
    if type(value) is _StorageView:
        return _make_view(value, values)
    if isinstance(value, dict):
        return {name: _substitute_values(item, values) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_substitute_values(item, values) for item in value)
    return value


def _constant(tensor: torch.Tensor) -> torch.Tensor:
    """The current values of an untraced tensor, copied if small, since it may be written to later."""
    return tensor.clone() if tensor.untyped_storage().nbytes() <= _SMALL else tensor


def _nested_tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [tensor for item in value for tensor in _nested_tensors(item)]


def _are_storages_persistent() -> bool:
    """True if a storage keeps Python attributes; older releases of torch create a new object on each access."""
    with private.without_dispatch_modes():
        tensor = real.empty(1)
        setattr(tensor.untyped_storage(), _VARIABLE_ATTRIBUTE, True)
        return (
            getattr(real.empty(0).set_(tensor.untyped_storage()).untyped_storage(), _VARIABLE_ATTRIBUTE, False) is True
        )
