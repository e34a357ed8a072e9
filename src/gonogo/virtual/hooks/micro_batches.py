"""Skips micro-batches of gradient accumulation that would repeat the previous one, and counts them instead.

What a micro-batch does follows from the batch, from what is in memory when it begins, and from the program's own
variables. So one is skipped if

- another micro-batch of the accumulation began with the same memory contents: the same bytes of the same modules and
  categories, and the allocator's large blocks at the same addresses; and has left memory unchanged;
- the batch has the same shapes, and its values give the same results wherever the other one's were read
  (:class:`gonogo.virtual.values.value_trace.ValueTrace`);
- neither the trainer nor a module of the model has counted micro-batches, and no condition on unknown values was met,
  since its answer may vary.

The first and the last micro-batch of each step are always run: they set gradients instead of adding to them, and
reduce them. What the other one has counted (operators, collectives, work, assumptions) is added once more.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from gonogo.evidence.rehearsal.record import OmittedPart
from gonogo.finding import translated
from gonogo.virtual import private
from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.memory.tracking import Cell, MemoryRecord
from gonogo.virtual.tensor import Spec, VirtualTensor, new_virtual
from gonogo.virtual.values import contents
from gonogo.virtual.values.value_trace import ValueTrace

_MIN_ACCUMULATION_STEPS = 4
"""With fewer micro-batches per step none can be skipped: the first, two equal ones, and the last are run."""
_COUNTED_MICRO_BATCHES = translated("{counted} of {total} micro-batches of gradient accumulation")
_NOT_RUN_REASON = translated(
    "these micro-batches were counted but not run: each has the same shapes and memory as the "
    "one before it (--every runs them)"
)


class Tally(Protocol):
    """A set of counters that grow while the program runs, such as FLOPs by operator."""

    def numbers(self) -> Mapping[Any, float]:
        """All counts, by key."""

    def add(self, key: Any, amount: float) -> None:
        """Add to one of the counts."""


class CounterTally:
    """The counts of a ``Counter``."""

    def __init__(self, counter: Counter[Any]) -> None:
        self._counter = counter

    def numbers(self) -> Mapping[Any, float]:
        """See :class:`Tally`."""
        return dict(self._counter)

    def add(self, key: Any, amount: float) -> None:
        """See :class:`Tally`."""
        self._counter[key] += int(amount)


class NumbersTally:
    """Numeric attributes of an object: the named ones, or all integers in its ``__dict__``."""

    def __init__(self, owner: Any, *names: str) -> None:
        self._owner = owner
        self._names = names

    def numbers(self) -> Mapping[Any, float]:
        """See :class:`Tally`."""
        if self._names:
            return {name: getattr(self._owner, name) for name in self._names}
        own = getattr(self._owner, "__dict__", {})
        return {name: value for name, value in own.items() if type(value) is int}

    def add(self, key: Any, amount: float) -> None:
        """See :class:`Tally`."""
        setattr(self._owner, key, getattr(self._owner, key) + amount)


@dataclass
class _UnknownLoss:
    """The result of a training step: a tensor with one unknown number."""

    spec: Spec
    nbytes: int
    category: int
    owner: Any
    nonnegative: bool


@dataclass
class _RecordedMicroBatch:
    """A micro-batch that was run."""

    batch: Hashable
    """Shapes and storage places of its tensors, and everything else in it."""
    before: tuple[object, ...]
    trace: ValueTrace
    loss: _UnknownLoss
    counts: list[tuple[Tally, dict[Any, float]]]
    only_in_step: int | None
    """The only step for which it is representative; None: any step."""
    is_neutral: bool = False
    """Whether it is known to leave memory as it was before."""


class MicroBatchSelector:
    """Decides which micro-batches of transformers' Trainer are run, and counts repeated ones without running them.

    ``tallies``: the counters of the whole process; ``must_run_all``: whether every micro-batch is run;
    ``all_ranks_agree``: whether all ranks that are rehearsed together say that this one repeats, given this rank's
    answer.
    """

    def __init__(
        self, lifecycle: Lifecycle, memory: MemoryRecord, tallies: Callable[[], Sequence[Tally]],
        must_run_all: Callable[[], bool], all_ranks_agree: Callable[[bool], bool],
    ) -> None:  # fmt: skip
        self._every = must_run_all
        self._agree = all_ranks_agree
        self._life = lifecycle
        self._memory = memory
        self._tallies = tallies
        self._known: _RecordedMicroBatch | None = None
        self._known_at = 0
        """The number of the last one that was traced."""
        self._is_first = True
        self._numbered: list[tuple[torch.nn.Module, str]] = []
        """The whole numbers that the model's modules have, before ZeRO-3 gives them its own."""
        self._total = self._counted = 0

    @contextmanager
    def skipping_repeats(self, trainer: Any) -> Iterator[None]:
        """Context in which repeated micro-batches of ``trainer`` are counted instead of run."""
        accumulates = getattr(trainer.args, "gradient_accumulation_steps", 1) >= _MIN_ACCUMULATION_STEPS
        if self._every() or not accumulates or "training_step" in vars(trainer):
            yield
            return
        trainer.training_step = functools.partial(self._training_step, trainer, trainer.training_step)
        self._known, self._is_first = None, True
        self._numbered = [
            (module, name)
            for module in (trainer.model.modules() if isinstance(trainer.model, torch.nn.Module) else ())
            for name, value in vars(module).items()
            if type(value) is int
        ]
        try:
            yield
        finally:
            del trainer.training_step
            self._numbered = []

    def _training_step(self, trainer: Any, run: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        is_last, is_first = trainer.accelerator.sync_gradients, self._is_first
        self._is_first = is_last
        self._total += 1
        if is_first or is_last:
            if self._counted:
                self._report_omitted_micro_batches()
            return run(model, *args, **kwargs)
        reals: list[torch.Tensor] = []
        batch = _batch_signature((args, kwargs), reals)
        before = self._memory_state()
        known = self._known
        repeats = known is not None and self._is_repeat(known, batch, before, reals)
        if self._agree(repeats) and known is not None:  # all ranks include this one, so ``known`` is set
            return self._count_without_running(known)
        self._known = None
        if batch is None:
            return run(model, *args, **kwargs)
        whole = functools.partial(run, model, *args, **kwargs)
        result, self._known = self._run_and_record(trainer, whole, batch, before, reals)
        return result

    def _is_repeat(
        self,
        recorded_run: _RecordedMicroBatch,
        batch: Hashable,
        before: tuple[object, ...],
        reals: Sequence[torch.Tensor],
    ) -> bool:
        """Whether this micro-batch would do the same as the recorded one."""
        if recorded_run.batch != batch or recorded_run.before != before:
            return False
        recorded_run.is_neutral = (
            recorded_run.is_neutral or self._known_at == self._total - 1
        )  # it was the previous one
        speaks_for_it = recorded_run.is_neutral and recorded_run.only_in_step in (None, self._life.step)
        return speaks_for_it and recorded_run.trace.has_same_reads_for(reals)

    def _module_numbers(self) -> list[Any]:
        return [vars(module).get(name) for module, name in self._numbered]

    def _memory_state(self) -> tuple[object, ...]:
        return tuple((str(device), record.state()) for device, record in self._memory.devices.items())

    def _run_and_record(
        self,
        trainer: Any,
        run: Callable[[], Any],
        batch: Hashable,
        before: tuple[object, ...],
        reals: list[torch.Tensor],
    ) -> tuple[Any, _RecordedMicroBatch | None]:
        """Run a micro-batch and record it, for comparison with later ones; None if it isn't representative."""
        ledger = self._life.ledger
        model = trainer.model_wrapped
        own = NumbersTally(trainer)
        others = [trainer.accelerator, model, getattr(model, "optimizer", None)]
        tallies = [*self._tallies(), own, *(NumbersTally(one) for one in others if one is not None)]
        counted = [dict(one.numbers()) for one in tallies]
        of_modules = self._module_numbers()
        branches, numbers = ledger.branches, ledger.made_numbers
        trace = ValueTrace(reals)
        with trace:
            result = run()
        counts = [(one, count_differences(old, one.numbers())) for one, old in zip(tallies, counted, strict=True)]
        keeps_count = 1 in dict(zip(map(id, tallies), (grown for _, grown in counts), strict=True))[id(own)].values()
        loss = _to_loss_template(result)
        keeps_count = keeps_count or self._module_numbers() != of_modules
        if loss is None or keeps_count or ledger.branches != branches:
            return result, None
        self._known_at = self._total
        step = self._life.step if ledger.made_numbers != numbers else None
        return result, _RecordedMicroBatch(batch, before, trace, loss, counts, step)

    def _count_without_running(self, recorded_run: _RecordedMicroBatch) -> VirtualTensor:
        for tally, grown in recorded_run.counts:
            for name, amount in grown.items():
                tally.add(name, amount)
        self._counted += 1
        loss = recorded_run.loss
        spec = loss.spec
        with private.DisableTorchDispatch():
            tensor = new_virtual(spec.shape, spec.strides, spec.dtype, spec.device)
        tensor.cell = Cell(self._memory.device(spec.device), loss.nbytes, loss.category, loss.owner)
        tensor.cell.nonnegative = loss.nonnegative
        return tensor

    def _report_omitted_micro_batches(self) -> None:
        what = _COUNTED_MICRO_BATCHES.format(counted=self._counted, total=self._total)
        self._life.cut["micro-batches"] = OmittedPart(what.en, what.zh, _NOT_RUN_REASON.en, _NOT_RUN_REASON.zh)


def count_differences(before: Mapping[Any, float], after: Mapping[Any, float]) -> dict[Any, float]:
    """The differences between two readings of a :class:`Tally`, without zeros."""
    return {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}


def _to_loss_template(result: Any) -> _UnknownLoss | None:
    if type(result) is not VirtualTensor or result.numel() != 1 or result.requires_grad or contents.is_known(result):
        return None
    cell = result.cell
    return _UnknownLoss(result.spec, cell.nbytes, cell.holding.category, cell.holding.owner, cell.nonnegative)


def _batch_signature(value: Any, reals: list[torch.Tensor]) -> Hashable:
    """A description of a batch without its values, which are appended to ``reals``; None if it is unsupported."""
    spec: Spec | None = None
    if isinstance(value, VirtualTensor):
        spec = value.spec
        with private.without_dispatch_modes():
            known = contents.peek_values(value)
        if known is None:
            return (spec, value.storage_offset(), value.cell.nbytes)
        value = known
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            return None
        reals.append(value)
        place = (value.storage_offset(), value.untyped_storage().nbytes())
        return (spec, value.dtype, value.shape, value.stride(), place)
    if isinstance(value, Mapping):
        return _batch_signature([*value.items()], reals)
    if isinstance(value, list | tuple):
        parts = [_batch_signature(item, reals) for item in value]
        return None if None in parts else (type(value).__name__, *parts)
    if value is None or isinstance(value, str | int | float | bool):
        return (type(value).__name__, value)
    return None
