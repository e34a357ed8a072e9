"""Skips layer calls during generation whose effect is known from earlier tokens, and accounts for them instead.

``generate`` calls every layer once per token. The effect of a call follows from its arguments and from the cache. So
a layer's call is skipped if

- the layer did the same for two tokens, eight apart: the same operators and collectives, no condition on values, the
  same results, and the same growth of memory; FLOPs and bytes may grow from token to token, and are extrapolated.
  Eight, because kernels pad their inputs to multiples of eight;
- its arguments are the same again, except for a dimension that may be larger by as many tokens.

The cache grows by its own code, with states of the same shape. Code outside the layers is run for each token. The
last token of a completion, which has the longest cache and so the peak, is run in full, and so are eight tokens
whenever their number has doubled: the measured effects must match the extrapolated ones, bytes read and seconds to
within 1 %.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import torch

from gonogo.evidence.rehearsal.record import OmittedPart
from gonogo.finding import translated
from gonogo.virtual import private
from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.hooks.micro_batches import Tally, count_differences
from gonogo.virtual.memory.tracking import Cell, MemoryRecord
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import Spec, VirtualTensor, new_virtual
from gonogo.virtual.values import contents
from gonogo.virtual.values.value_trace import ValueTrace

_DECODING_METHODS = ("_sample", "_beam_search", "_greedy_search", "_contrastive_search")
_PERIOD = 8
"""A layer's effect repeats after this many tokens."""
_COUNTED_CALLS = translated("{counted} of {total} decoder layer calls in generate()")
_NOT_RUN_REASON = translated(
    "these calls were counted but not run: each does the same work for its token as the calls "
    "before it (--every runs them)"
)


_Effect: TypeAlias = tuple[list[dict[Any, float]], dict[str, int]]
"""The effect of a call: what it added to each tally, and bytes per device."""
_N = TypeVar("_N", int, float)


class _ValueReadDetector(ValueTrace):
    """Detects whether a call reads the known values among its arguments."""

    def __init__(self, arguments: Any) -> None:
        with private.without_dispatch_modes():
            super().__init__(_known_values(arguments))
        self.any = False

    def record_test(self, values: torch.Tensor, test: Callable[[torch.Tensor], object]) -> None:
        """See :class:`ValueTrace`."""
        self.any = self.any or self._view_of_variable(values) is not None

    def record_read(self, values: torch.Tensor) -> None:
        """See :class:`ValueTrace`."""
        self.any = self.any or self._view_of_variable(values) is not None


@dataclass(frozen=True)
class _TensorTemplate:
    """A tensor without values, described so that it can be created again."""

    spec: Spec
    nbytes: int
    category: int
    owner: Any


@dataclass
class _LayerCall:
    """A recorded call of a decoder layer, with its arguments, results and effect."""

    number: int
    """The number of the token, from 1."""
    arguments: Any
    """As described by :func:`_describe_arguments`."""
    results: Any
    """With :class:`_TensorTemplate` in place of tensors."""
    updates: list[tuple[Any, Any, Any]]
    """(cache, arguments, keyword arguments) of each cache update, with :class:`_TensorTemplate` in place of tensors."""
    grown: list[dict[Any, float]]
    """What the call added to each tally."""
    memory: dict[str, int]
    """Bytes that the call added on each device."""


@dataclass
class _LayerState:
    """The state of one layer of the model."""

    calls: int = 0
    ran: dict[int, tuple[_LayerCall | None, _LayerCall | None]] = field(default_factory=dict)
    """The first two equal calls, or the last two calls, by token number modulo the period."""
    is_given_up: bool = False
    """Whether the layer turned out to behave differently for different tokens."""


@dataclass
class _GenerateCall:
    """One call of ``generate``."""

    tokens: int
    """The maximum number of new tokens."""
    layers: dict[int, _LayerState] = field(default_factory=dict)
    updates: list[tuple[Any, Any, Any]] | None = None
    """Where cache updates are recorded while a layer is being watched."""
    total: int = 0
    counted: int = 0


class Decoding:
    """Decides which decoder layer calls of ``generate`` are run; the effects of the others are extrapolated.

    ``tallies``: the counters of the whole process; ``must_run_all``: whether every call is run.
    """

    def __init__(
        self,
        lifecycle: Lifecycle,
        memory: MemoryRecord,
        tallies: Callable[[], Sequence[Tally]],
        must_run_all: Callable[[], bool],
    ) -> None:
        self._life = lifecycle
        self._memory = memory
        self._tallies = tallies
        self._every = must_run_all
        self._now: _GenerateCall | None = None
        self._total = self._counted = 0

    def install(self) -> Callable[[], None]:
        """Wrap transformers' decoding loops once they are imported; returns the undo."""
        patches = Patches()

        def patch_decoding_methods(module: Any) -> None:
            for name in _DECODING_METHODS:
                if hasattr(module.GenerationMixin, name):
                    patches.set(
                        module.GenerationMixin, name, self._wrap_loop(module, getattr(module.GenerationMixin, name))
                    )

        def patch_cache_updates(module: Any) -> None:
            for owner in list(vars(module).values()):
                update = vars(owner).get("update") if isinstance(owner, type) else None
                if update is not None and issubclass(owner, module.Cache):
                    patches.set(owner, "update", self._wrap_cache_update(update))

        if hasattr(torch.nn.Module, "_compiled_call_impl"):  # torch 2.1 or newer
            patches.on_undo(after_import("transformers.generation.utils", patch_decoding_methods))
            patches.on_undo(after_import("transformers.cache_utils", patch_cache_updates))
        return patches.undo

    def _wrap_loop(self, module: Any, loop: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(loop)
        def run_tracked_loop(model: Any, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
            criteria = [one for one in (*args, *kwargs.values()) if isinstance(one, module.StoppingCriteriaList)]
            most = criteria[0].max_length if criteria else None
            with self._track_layers(model, 0 if most is None else most - input_ids.shape[-1]):
                return loop(model, input_ids, *args, **kwargs)

        return run_tracked_loop

    @contextmanager
    def _track_layers(self, model: torch.nn.Module, tokens: int) -> Iterator[None]:
        layers = list(_decoder_layers(model)) if tokens > 3 * _PERIOD else []
        is_followed = not (self._every() or self._now is not None or ValueTrace.now is not None)
        if not layers or not is_followed or torch.is_grad_enabled():
            yield
            return
        self._now = _GenerateCall(tokens)
        for layer in layers:
            self._now.layers[id(layer)] = _LayerState()
            layer._compiled_call_impl = functools.partial(self._call_layer, self._now, layer)
        try:
            yield
        finally:
            for layer in layers:
                del layer._compiled_call_impl
            self._total += self._now.total
            self._counted += self._now.counted
            self._now = None
            if self._counted:
                what = _COUNTED_CALLS.format(counted=self._counted, total=self._total)
                self._life.cut["decoding"] = OmittedPart(what.en, what.zh, _NOT_RUN_REASON.en, _NOT_RUN_REASON.zh)

    def _wrap_cache_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(update)
        def record_cache_update(cache: Any, *args: Any, **kwargs: Any) -> Any:
            now = self._now
            if now is None or now.updates is None:
                return update(cache, *args, **kwargs)
            into, now.updates = now.updates, None  # of nested updates, record only the outermost
            try:
                into.append((cache, _to_template(args), _to_template(kwargs)))
                return update(cache, *args, **kwargs)
            finally:
                now.updates = into

        return record_cache_update

    def _call_layer(self, now: _GenerateCall, module: Any, *args: Any, **kwargs: Any) -> Any:
        layer = now.layers[id(module)]
        layer.calls += 1
        now.total += 1
        if layer.is_given_up or now.updates is not None:
            return module._call_impl(*args, **kwargs)
        arguments = _describe_arguments((args, kwargs))
        before, last = layer.ran.get(layer.calls % _PERIOD, (None, None))
        if before is None or last is None or not _continues_pattern(before, last, layer.calls, arguments):
            expected = None
        else:
            expected = _expected_effect(before, last, layer.calls)
            is_checked = layer.calls >= now.tokens or _is_power_of_two(layer.calls // _PERIOD)
            if not is_checked:
                return self._apply_skipped_call(now, layer, last, expected)
        return self._run_and_record(
            now, layer, arguments, expected, functools.partial(module._call_impl, *args, **kwargs)
        )

    def _run_and_record(
        self,
        now: _GenerateCall,
        layer: _LayerState,
        arguments: Any,
        expected_effect: _Effect | None,
        run: functools.partial[Any],
    ) -> Any:
        """Run a call and record its effect."""
        tallies = self._tallies()
        ledger = self._life.ledger
        assumed = ledger.branches, ledger.made_numbers
        before, memory = [dict(one.numbers()) for one in tallies], self._live_bytes_by_device()
        updates: list[tuple[Any, Any, Any]] = []
        now.updates, ValueTrace.now = updates, (reads := _ValueReadDetector((run.args, run.keywords)))
        try:
            result = run()
        finally:
            now.updates, ValueTrace.now = None, None
        grown = [count_differences(old, one.numbers()) for one, old in zip(tallies, before, strict=True)]
        results = _to_template(result)
        is_independent = not reads.any and (ledger.branches, ledger.made_numbers) == assumed
        if results is None or any(None in one for one in updates) or not is_independent:
            layer.ran.pop(layer.calls % _PERIOD, None)
            return result
        live = self._live_bytes_by_device()
        grew = {name: live[name] - memory.get(name, 0) for name in live}
        call = _LayerCall(layer.calls, arguments, results, updates, grown, grew)
        if expected_effect is None:
            _, last = layer.ran.get(call.number % _PERIOD, (None, None))
            layer.ran[call.number % _PERIOD] = last, call
        elif not _matches_expected(expected_effect, call):
            layer.is_given_up = True
        return result

    def _apply_skipped_call(
        self, now: _GenerateCall, layer: _LayerState, last: _LayerCall, expected_effect: _Effect
    ) -> Any:
        """Apply the effect of a call that is not run: counters, a longer cache, results."""
        tallies = self._tallies()
        before, memory = [dict(one.numbers()) for one in tallies], self._live_bytes_by_device()
        for cache, args, kwargs in last.updates:
            cache.update(*self._rebuild_from_template(args), **self._rebuild_from_template(kwargs))
        results = self._rebuild_from_template(last.results)
        for tally, old, wanted in zip(tallies, before, expected_effect[0], strict=True):
            done = count_differences(old, tally.numbers())
            for name in wanted.keys() | done.keys():
                if missing := wanted.get(name, 0) - done.get(name, 0):
                    tally.add(name, missing)
        live = self._live_bytes_by_device()
        layer.is_given_up = any(live[name] - memory.get(name, 0) != expected_effect[1].get(name, 0) for name in live)
        now.counted += 1
        return results

    def _live_bytes_by_device(self) -> dict[str, int]:
        return {str(device): record.live for device, record in self._memory.devices.items()}

    def _rebuild_from_template(self, recorded_result: Any) -> Any:
        if isinstance(recorded_result, _TensorTemplate):
            spec = recorded_result.spec
            with private.DisableTorchDispatch():
                tensor = new_virtual(spec.shape, spec.strides, spec.dtype, spec.device)
            tensor.cell = Cell(
                self._memory.device(spec.device),
                recorded_result.nbytes,
                recorded_result.category,
                recorded_result.owner,
            )
            return tensor
        if isinstance(recorded_result, Mapping):
            return {name: self._rebuild_from_template(value) for name, value in recorded_result.items()}
        if isinstance(recorded_result, list | tuple):
            return type(recorded_result)(self._rebuild_from_template(value) for value in recorded_result)
        return recorded_result


def _decoder_layers(model: torch.nn.Module) -> Iterator[Any]:
    """The modules in the outermost ModuleLists, except those whose calls are hooked, replaced or compiled."""
    for child in model.children():
        if not isinstance(child, torch.nn.ModuleList):
            yield from _decoder_layers(child)
            continue
        yield from (layer for layer in child if all(map(_is_plain_forward, layer.modules())))


def _is_plain_forward(part: Any) -> bool:
    """Whether a call runs only the class's ``forward``: not hooked, replaced or compiled."""
    is_hooked = part._forward_hooks or part._forward_pre_hooks
    return not is_hooked and "forward" not in vars(part) and part._compiled_call_impl is None


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _expected_effect(before: _LayerCall, last: _LayerCall, number: int) -> _Effect:
    """Extrapolate the effect of a call from two calls that are one period apart."""
    ahead = (number - last.number) // _PERIOD
    grown = [_extrapolate_counts(old, new, ahead) for old, new in zip(before.grown, last.grown, strict=True)]
    return grown, _extrapolate_counts(before.memory, last.memory, ahead)


def _continues_pattern(before: _LayerCall, last: _LayerCall, number: int, arguments: Any) -> bool:
    """Whether a call with these arguments continues the pattern of the two recorded ones."""
    if last.number - before.number != _PERIOD or before.results != last.results or before.updates != last.updates:
        return False
    is_steady = all(_counts_match(old, new) for old, new in zip(before.grown, last.grown, strict=True))
    return is_steady and _continues_linearly(
        before.arguments, last.arguments, arguments, (number - last.number) // _PERIOD
    )


_COSTS_GROWING_WITH_LENGTH = ("flops", "memory_bytes", "long_seconds", "short_seconds")
"""Work that may grow from token to token, because the cache gets longer (padded to 8 or 16)."""
_TOLERANCE = 0.01


def _counts_match(before: Mapping[Any, float], last: Mapping[Any, float]) -> bool:
    """Whether two calls counted the same, except for work that grows with the cache."""
    if before.keys() != last.keys():
        return False
    return all(last[name] == value or _grows_with_cache(name) for name, value in before.items())


def _grows_with_cache(name: Any) -> bool:
    return isinstance(name, tuple) and len(name) == 4 and name[2] in _COSTS_GROWING_WITH_LENGTH


def _continues_linearly(before: Any, last: Any, now: Any, steps_ahead: int) -> bool:
    """Whether ``now`` continues linearly from ``before`` and ``last``: dimensions grow by a constant amount."""
    if isinstance(before, _ArgumentShape) and isinstance(last, _ArgumentShape) and isinstance(now, _ArgumentShape):
        if not before.kind == last.kind == now.kind:
            return False
        sides = zip(before.sides, last.sides, now.sides, strict=True)
        return all(new == old + steps_ahead * (old - oldest) for oldest, old, new in sides)
    if isinstance(before, tuple) and isinstance(last, tuple) and isinstance(now, tuple):
        if not len(before) == len(last) == len(now):
            return False
        return all(_continues_linearly(*three, steps_ahead) for three in zip(before, last, now, strict=True))
    return bool(before == last == now)


@dataclass(frozen=True)
class _ArgumentShape:
    """A tensor among arguments."""

    kind: Hashable
    """The properties that must not change from token to token."""
    sides: tuple[int, ...]


def _known_values(value: Any) -> list[torch.Tensor]:
    """The values of the tensors among arguments, as far as they are known."""
    if isinstance(value, VirtualTensor):
        known = contents.peek_values(value)
        return [] if known is None else [known]
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [one for item in value for one in _known_values(item)] if isinstance(value, list | tuple) else []


def _describe_arguments(value: Any) -> Any:
    """Arguments with a :class:`_ArgumentShape` in place of each tensor; other objects by identity."""
    if isinstance(value, torch.Tensor):
        return _ArgumentShape((type(value), value.dtype, value.device, value.dim()), tuple(value.shape))
    if isinstance(value, Mapping) and type(value) is dict:
        return tuple((name, _describe_arguments(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_describe_arguments(item) for item in value)
    if value is None or isinstance(value, str | int | float | bool):
        return (type(value).__name__, value)
    return ("object", id(value))


def _to_template(value: Any) -> Any:
    """A value with a :class:`_TensorTemplate` in place of each tensor; None if it can't be created again."""
    if isinstance(value, VirtualTensor):
        if value.requires_grad or value.storage_offset() or contents.is_known(value):
            return None
        cell = value.cell
        return _TensorTemplate(value.spec, cell.nbytes, cell.holding.category, cell.holding.owner)
    if isinstance(value, torch.Tensor):
        return None
    if type(value) is dict:
        kept: Any = {name: _to_template(item) for name, item in value.items()}
        return None if any(kept[name] is None and value[name] is not None for name in kept) else kept
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        kept = [_to_template(item) for item in value]
        return (
            None
            if any(new is None and old is not None for new, old in zip(kept, value, strict=True))
            else type(value)(kept)
        )
    return value


def _extrapolate_counts(before: Mapping[Any, _N], last: Mapping[Any, _N], steps_ahead: int) -> dict[Any, _N]:
    return {name: value + steps_ahead * (value - before.get(name, 0)) for name, value in last.items()}


def _matches_expected(expected_effect: _Effect, call: _LayerCall) -> bool:
    """Whether a call's effect matches the expected one; bytes read and time only approximately."""
    if expected_effect[1] != call.memory:
        return False
    for wanted, found in zip(expected_effect[0], call.grown, strict=True):
        for name in wanted.keys() | found.keys():
            one, other = wanted.get(name, 0), found.get(name, 0)
            may_differ = _TOLERANCE * abs(other) if _grows_with_cache(name) else 0
            if abs(one - other) > may_differ:
                return False
    return True
