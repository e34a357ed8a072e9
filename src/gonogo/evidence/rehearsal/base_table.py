"""Compares the frozen weights of a run's first life with those that its later life, or a merge, put the adapter on.

Frozen weights are in no checkpoint: each program loads them again, from the files that it names, or draws them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gonogo.evidence.rehearsal.lives import RankRunState, StateOrigin, TensorSample
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.evidence.rehearsal.tensor_samples import compare_samples
from gonogo.finding.lives.life_report import BaseRow, BaseStatus

_PEFT_PREFIX_PATTERN = re.compile(r"^base_model\.(?:model\.)?|\.base_layer(?=\.)|\.modules_to_save\.[^.]+(?=\.)")
_INACTIVE_COPY = ".original_module."
"""PEFT's copy of a module that it trains: it is not used."""
_WHOLE, _SOME = 0.999, 0.001


class _FrozenWeight(NamedTuple):
    """A frozen weight of one program of a run, and what its contents came from."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    origins: tuple[StateOrigin, ...]

    @property
    def shares_by_source(self) -> dict[tuple[str, str], float]:
        """The share of its contents from each (file, key) that it was loaded or computed from."""
        return {(one.slot, one.name): one.share for one in self.origins if one.kind == "base" and one.slot}

    @property
    def random_share(self) -> float:
        """The share of its contents that a random generator made."""
        return sum(one.share for one in self.origins if one.kind == "drawn")

    @property
    def is_known(self) -> bool:
        """Whether nothing of it came from another rank, or from a file without known contents."""
        return bool(self.origins) and all(
            one.kind != "rank" and (one.kind != "base" or one.slot) for one in self.origins
        )


class _WeightComparison(NamedTuple):
    """What became of a frozen weight in a later program."""

    status: BaseStatus
    is_certain: bool = True
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def base_weight_rows(
    first: RehearsalRecord, later: Sequence[RehearsalRecord], stages: Sequence[str]
) -> tuple[BaseRow, ...]:
    """The first run's frozen weights, grouped by what each was in the later programs (``stages``).

    A weight that several of them have counts where it differs first.
    """
    lives = [rank.life for rank in first.ranks if rank.life is not None]
    before = _initial_weights(lives)
    if not before:
        return ()
    samples = _tensor_samples(lives)
    found: dict[str, tuple[str, _WeightComparison, _FrozenWeight, _FrozenWeight]] = {}
    for stage, record in zip(stages, later, strict=True):
        theirs = [rank.life for rank in record.ranks if rank.life is not None]
        unknown = _files_of_untracked(lives, theirs)
        now = _later_weights(theirs)
        samples_now = _tensor_samples(theirs)
        for name, weight in before.items():
            current = now.get(name)
            if current is None or (name in found and found[name][1].status not in ("same", "rounded")):
                continue
            verdict = _compare_weight(weight, current, samples, samples_now, unknown)
            if verdict is not None and (name not in found or verdict.status != "same"):
                found[name] = stage, verdict, weight, current
    return tuple(_group_rows(found))


def _group_rows(found: Mapping[str, tuple[str, _WeightComparison, _FrozenWeight, _FrozenWeight]]) -> Iterator[BaseRow]:
    """Rows in which weights with the same outcome are merged."""
    groups: dict[tuple[str, ...], list[str]] = {}
    firsts: dict[tuple[str, ...], tuple[str, _WeightComparison, _FrozenWeight, _FrozenWeight]] = {}
    for reported in found.values():
        stage, verdict, weight, now = reported
        key = (stage, *map(str, (verdict.status, verdict.is_certain, verdict.before, verdict.after)))
        groups.setdefault(key, []).append(weight.name)
        firsts.setdefault(key, reported)
    for key, names in groups.items():
        stage, verdict, weight, now = firsts[key]
        yield BaseRow(
            stage,
            verdict.status,
            verdict.is_certain,
            tuple(names),
            verdict.before,
            verdict.after,
            weight.dtype,
            now.dtype,
        )


def strip_peft_wrappers(name: str) -> str:
    """A parameter's name without the components that PEFT's wrappers add."""
    return _PEFT_PREFIX_PATTERN.sub("", name)


def _initial_weights(lives: Sequence[RankRunState]) -> dict[str, _FrozenWeight]:
    found: dict[str, _FrozenWeight] = {}
    for life in lives:
        for state in life.at_save.held if life.at_save is not None else ():
            if state.kind == "parameter" and not state.trained and _INACTIVE_COPY not in f".{state.name}.":
                weight = _FrozenWeight(state.name, state.shape, state.dtype, state.initial)
                known = found.get(strip_peft_wrappers(state.name))
                if known is None or (weight.is_known and not known.is_known):
                    found[strip_peft_wrappers(state.name)] = weight
    return found


def _later_weights(lives: Sequence[RankRunState]) -> dict[str, _FrozenWeight]:
    found: dict[str, _FrozenWeight] = {}
    for life in lives:
        weights = [_FrozenWeight(one.key, one.shape, one.dtype, one.origins) for one in life.weights]
        if life.at_start is not None:
            weights += [
                _FrozenWeight(state.name, state.shape, state.dtype, state.origins)
                for state in life.at_start.held
                if state.kind == "parameter" and _INACTIVE_COPY not in f".{state.name}."
            ]
        for weight in weights:
            known = found.get(strip_peft_wrappers(weight.name))
            if known is None or (weight.is_known and not known.is_known):
                found[strip_peft_wrappers(weight.name)] = weight
    return found


def _tensor_samples(lives: Iterable[RankRunState]) -> dict[tuple[str, str], TensorSample]:
    return {
        (file, key): one for life in lives for file, reported in life.samples.items() for key, one in reported.items()
    }


def _files_of_untracked(before: Sequence[RankRunState], after: Sequence[RankRunState]) -> frozenset[str]:
    """Files that a process which wasn't tracked has written since the run began."""
    began = min((life.began for life in before), default=0.0)
    return frozenset(
        os.path.realpath(file)
        for life in (*before, *after)
        for file, changed in life.unlabelled.items()
        if changed >= began > 0
    )


def _compare_weight(
    before: _FrozenWeight,
    now: _FrozenWeight,
    samples: Mapping[tuple[str, str], TensorSample],
    samples_now: Mapping[tuple[str, str], TensorSample],
    unknown: frozenset[str],
) -> _WeightComparison | None:
    """What became of one weight in a later program; None if that isn't known."""
    own = sum(
        one.share
        for one in now.origins
        if one.kind == "parameter" and strip_peft_wrappers(one.name) == strip_peft_wrappers(before.name)
    )
    if own >= _WHOLE:  # it came through the run's own files
        return _WeightComparison("same")
    if not before.is_known or not now.is_known:
        return None
    was, has = before.shares_by_source, now.shares_by_source
    if any(file in unknown for file, _ in (*was, *has)):
        return None
    files = (
        tuple(dict.fromkeys(_folder_of(file) for file, _ in was)),
        tuple(dict.fromkeys(_folder_of(file) for file, _ in has)),
    )
    applied = [
        one for one in now.origins if one.kind == "parameter" and one.slot == "" and ".base_layer." in f".{now.name}."
    ]
    if applied:  # the adapter is in the base already
        return _WeightComparison("applied-before", True, *files)
    if before.random_share > _SOME or now.random_share > _SOME:
        return _WeightComparison("drawn", False, *files) if before.random_share > _SOME or was else None
    if not was or not has:
        return None
    by_key = {key: file for file, key in was}
    keys_now = {key for _, key in has}
    verdicts = [
        _find_same_tensor((by_key[key], key), (file, key), samples, samples_now) for file, key in has if key in by_key
    ]
    if not verdicts:
        return None  # renamed: which tensor is which can't be told
    if set(by_key) != keys_now:
        return _WeightComparison("other", True, *files)
    worst = max(verdicts, key=lambda one: (one.status == "other", one.status == "rounded", one.is_certain))
    if worst.status == "same" and before.dtype != now.dtype:
        return _WeightComparison("rounded", True, *files)
    return (
        _WeightComparison(worst.status, worst.is_certain, *files)
        if worst.status != "same"
        else _WeightComparison("same", True, *files)
    )


def _find_same_tensor(
    before: tuple[str, str],
    now: tuple[str, str],
    samples: Mapping[tuple[str, str], TensorSample],
    samples_now: Mapping[tuple[str, str], TensorSample],
) -> _WeightComparison:
    one, other = samples.get(before), samples_now.get(now)
    if one is None or other is None:
        return _WeightComparison("same") if before[0] == now[0] else _WeightComparison("other", is_certain=False)
    how = compare_samples(one, other)
    return _WeightComparison("rounded", is_certain=False) if how == "packed" else _WeightComparison(how)


def _folder_of(file: str) -> str:
    return os.path.dirname(file)
