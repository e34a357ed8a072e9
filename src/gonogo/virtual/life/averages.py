"""Averages of the weights (EMA, SWA): tensors shaped like the parameters that the program updates after each step.

They are recognised by how they are updated, not by the class that holds them: a tensor that existed before the step, is
neither a parameter, a buffer nor optimizer state, and is written in place from another tensor of its shape between an
optimizer step and the next forward. A plain copy of a parameter isn't an average: weights are copied so for a rollout.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from gonogo.evidence.rehearsal.lives import HeldState, StateCounter
from gonogo.virtual import origins
from gonogo.virtual.collectives.exchange import flatten_tensors
from gonogo.virtual.frame_variables import local_variable
from gonogo.virtual.life.inventory import StateTensor, origins_of_pieces
from gonogo.virtual.memory.tracking import Cell
from gonogo.virtual.tensor import VirtualTensor, local_tensors

_MIN_SHARE = 0.5
"""Share of the trained parameters that must have an average; fewer are other tensors of a parameter's shape."""
_MAX_FRAMES = 40
_MAX_HELD_VALUES = 100_000
"""Largest list or dict of an object that is searched for the averages."""


class _TrackedAverage(NamedTuple):
    """A range of a storage that the program updates like a weight average (EMA)."""

    cell: weakref.ref[Cell]
    start: int
    end: int
    shape: tuple[int, ...]
    dtype: str
    name: str
    part: str

    @property
    def label(self) -> origins.Label:
        return "average", "", self.name, self.part

    def current_state(self) -> HeldState | None:
        """Its current state, or None if it has been freed."""
        cell = self.cell()
        if cell is None:
            return None
        pieces = origins.pieces_of(cell, self.start, self.end)
        found = tuple(origins_of_pieces(pieces, self.end - self.start))
        return HeldState("average", self.name, self.shape, self.dtype, origins=found, part=self.part)


class Averages:
    """Detects weight averages (EMA) after each optimizer step, and records their state."""

    def __init__(self, *, labels: bool) -> None:
        self._labels = labels
        """Whether to label the averages, as in the first life."""
        self._is_open = False
        self._state_cells: set[int] = set()
        self._parameters: list[StateTensor] = []
        self._unused: list[StateTensor] = []
        self._created_since_step: set[int] = set()
        self._found: dict[tuple[int, int], tuple[_TrackedAverage, HeldState | None]] = {}
        self._current: tuple[_TrackedAverage, ...] = ()
        self.at_first_update: tuple[HeldState, ...] = ()
        """Before the first update of this life."""
        self.counters_at_first_update: tuple[StateCounter, ...] = ()
        self._owner: weakref.ref[Any] | None = None
        self._numbers: dict[str, float] = {}
        """The owner's whole numbers when the previous window closed."""

    # -- from one step to the next forward ------------------------------------------------------------

    def start_detection(self, held: Iterable[StateTensor]) -> None:
        """Start to look for updates of averages, after an optimizer step that left this state."""
        states = list(held)
        self._state_cells = {id(state.tensor.cell) for state in states}
        self._parameters = [state for state in states if state.kind == "parameter"]
        self._unused = list(self._parameters)
        self._created_since_step, self._found, self._is_open = set(), {}, True

    def end_detection(self) -> None:
        """Stop looking for updates of averages: the next forward begins."""
        if not self._is_open:
            return
        self._is_open = False
        numbers = self._owner_integers()
        if found := self._updated_averages():
            self._current = tuple(average for average, _ in found)
            if not self.at_first_update:
                self.at_first_update = tuple(before for _, before in found if before is not None)
            self._label_averages(self._current)
        grown = [name for name, value in numbers.items() if self._numbers.get(name) == value - 1]
        if grown and self._current and not self.counters_at_first_update:
            # Each window adds one, so before the first one the counter was two lower than now.
            self.counters_at_first_update = tuple(self._update_counter(name, numbers[name] - 2) for name in grown)
        self._numbers = numbers

    def average_states(self) -> Iterator[HeldState]:
        """The current state of each average."""
        for average in self._known_averages():
            if (state := average.current_state()) is not None:
                yield state

    def update_counters(self) -> Iterator[StateCounter]:
        """Integer attributes of the averages' owner that grew by one since the previous update."""
        for name, value in self._owner_integers().items():
            if self._known_averages() and self._numbers.get(name) == value - 1:
                yield self._update_counter(name, value)

    def _known_averages(self) -> tuple[_TrackedAverage, ...]:
        return tuple(average for average, _ in self._updated_averages()) or self._current

    def _updated_averages(self) -> list[tuple[_TrackedAverage, HeldState | None]]:
        """What was updated after this step, if it covers enough parameters to be an average of the weights."""
        trained = sum(parameter.trained for parameter in self._parameters)
        found = [pair for pair in self._found.values() if pair[0].cell() is not None]
        return found if len(found) >= max(_MIN_SHARE * trained, 1) else []

    def _update_counter(self, name: str, value: float) -> StateCounter:
        owner = self._owner() if self._owner is not None else None
        return StateCounter("average", f"{type(owner).__name__}.{name}", value)

    def _label_averages(self, averages: Iterable[_TrackedAverage]) -> None:
        for average in averages if self._labels else ():
            cell = average.cell()
            if cell is not None:
                size = average.end - average.start
                origins.set_pieces(cell, average.start, average.end, [(0, size, average.label)])

    # -- what operators do ------------------------------------------------------------

    def before_operator(self, func: Any, args: Any, kwargs: Any) -> None:
        """Called before each operator: what it is about to write may be an average."""
        if not self._is_open or func.namespace != "aten" or not func._schema.is_mutable:
            return
        copies = func._schema.name in ("aten::copy_", "aten::_foreach_copy_")
        for written, read in _written_and_sources(func, args, kwargs):
            if not self._may_be_average(written, read):
                continue
            if self._owner is None or self._owner() is None:
                owner = _find_holding_object(written, sys._getframe(1))
                self._owner = weakref.ref(owner) if owner is not None else None
            if not copies or not any(map(self._is_parameter, read)):  # an average begins as a copy of the weights
                self._record_average(written)

    def after_operator(self, func: Any, args: Any, out: Any) -> None:
        """Called after each operator: ignore tensors created since the step, and label updated averages again."""
        if not self._is_open:
            return
        if func._schema.is_mutable:
            if self._labels and func.namespace == "aten":
                for tensor in _virtual_tensors(args):
                    found = self._found.get((id(tensor.cell), origins.span_of(tensor)[0]))
                    if found is not None and found[0].cell() is tensor.cell:
                        self._label_averages([found[0]])
            return
        given = {id(tensor.cell) for tensor in _virtual_tensors(args)}
        self._created_since_step |= {id(tensor.cell) for tensor in _virtual_tensors([out])} - given

    def _may_be_average(self, written: VirtualTensor, read: list[VirtualTensor]) -> bool:
        cell = id(written.cell)
        if cell in self._state_cells or cell in self._created_since_step or written.numel() <= 1:
            return False
        return written.dtype.is_floating_point and any(
            one.shape == written.shape and one.cell is not written.cell for one in read
        )

    def _is_parameter(self, source: VirtualTensor) -> bool:
        """Whether a source is a parameter or a copy of one.

        ZeRO copies its parameters from the optimizer's master weights, and gathers them with other ranks' shards.
        """
        if id(source.cell) in self._state_cells:
            return True
        pieces = origins.pieces_in(source)
        return bool(pieces) and all(label[0] in ("parameter", "optimizer", "rank") for *_, label in pieces)

    def _record_average(self, tensor: VirtualTensor) -> None:
        start, end = origins.span_of(tensor)
        key = id(tensor.cell), start
        if key in self._found:
            return
        # Averages of sharded weights are either sharded too or updated from the gathered ones.
        parameter = next((one for one in self._unused if tensor.shape in (one.tensor.shape, one.shape)), None)
        if parameter is None:
            return
        self._unused.remove(parameter)
        dtype = str(tensor.dtype).removeprefix("torch.")
        part = parameter.part if tensor.shape == parameter.tensor.shape else ""
        average = _TrackedAverage(weakref.ref(tensor.cell), start, end, parameter.shape, dtype, parameter.name, part)
        self._found[key] = average, average.current_state() if not self.at_first_update else None

    # -- counters ------------------------------------------------------------

    def _owner_integers(self) -> dict[str, float]:
        owner = self._owner() if self._owner is not None else None
        if owner is None:
            return {}
        values = {**vars(owner), **getattr(owner, "_buffers", {})}
        return {name: number for name, value in values.items() if (number := _whole_number(value)) is not None}


def _whole_number(value: Any) -> float | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, torch.Tensor) and not value.dim() and not value.dtype.is_floating_point:
        known = VirtualTensor.virtual_mode.known_values(value) if isinstance(value, VirtualTensor) else value
        return float(known.item()) if known is not None and known.dtype != torch.bool else None
    return None


def _find_holding_object(tensor: VirtualTensor, frame: FrameType | None) -> Any:
    """The object whose method updates the tensor and which holds it, directly or in a list, dict or module."""
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return None
        owner = local_variable(frame, "self")
        if owner is not None and hasattr(owner, "__dict__") and _holds_tensor(owner, tensor):
            return owner
        frame = frame.f_back
    return None


def _holds_tensor(owner: Any, tensor: VirtualTensor) -> bool:
    if isinstance(owner, nn.Module):
        return any(_shares_cell(parameter, tensor) for parameter in owner.parameters())
    for value in list(vars(owner).values()):
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        if len(values) < _MAX_HELD_VALUES and any(_shares_cell(one, tensor) for one in values):
            return True
    return False


def _shares_cell(value: Any, tensor: VirtualTensor) -> bool:
    return isinstance(value, torch.Tensor) and any(one.cell is tensor.cell for one in local_tensors(value))


def _virtual_tensors(values: Any) -> Iterator[VirtualTensor]:
    return (value for value in flatten_tensors(values) if isinstance(value, VirtualTensor))


@functools.cache
def _written_positions(func: Any) -> tuple[int, ...]:
    arguments = func._schema.arguments
    return tuple(n for n, one in enumerate(arguments) if one.alias_info is not None and one.alias_info.is_write)


def _written_and_sources(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[VirtualTensor, list[VirtualTensor]]]:
    """Each tensor that an operator writes in place, with its sources; for lists, the entries at the same index."""
    for position in _written_positions(func):
        if position >= len(args):
            continue
        others = [one for number, one in enumerate(args) if number != position]
        if isinstance(args[position], list | tuple):
            lists = [one for one in others if isinstance(one, list | tuple)]
            for place, written in enumerate(args[position]):
                read = [one[place] for one in lists if place < len(one)]
                if isinstance(written, VirtualTensor):
                    yield written, list(_virtual_tensors(read))
        elif isinstance(args[position], VirtualTensor):
            yield args[position], [*_virtual_tensors(others), *_virtual_tensors(list(kwargs.values()))]
