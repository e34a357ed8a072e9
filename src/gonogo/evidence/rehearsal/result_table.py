"""Compares what the first life trained with what its checkpoint was converted, merged or loaded into."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gonogo.evidence.rehearsal.base_table import base_weight_rows, strip_peft_wrappers
from gonogo.evidence.rehearsal.life_table import WHOLE_SHARE, is_key_of
from gonogo.evidence.rehearsal.lives import HeldState, RankRunState, SavedTensor, StateMoment
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding.lives.life_report import StateRow, StateStatus
from gonogo.finding.lives.result_report import ResultReport, ResultStage

_FLAT_WEIGHTS = ("optimizer", "weights")
"""Master weights that the optimizer updates: of a flat partition, it is unknown which parameter each part is."""


def result_report(record: RehearsalRecord) -> ResultReport | None:
    """How weights made from a checkpoint (merged, converted) compare with the trained ones; None if there are none."""
    first = record.first_life or record
    before = [rank.life for rank in first.ranks if rank.life is not None and rank.life.at_save is not None]
    if not record.afterwards or not before or record.life_part not in ("first", "second"):
        return None
    lives = [[rank.life for rank in done.ranks if rank.life is not None] for done in record.afterwards]
    loaded = _loaded_states(lives[-1]) if record.afterwards[-1].life_part == "serve" else None
    had: dict[str, HeldState] = {}
    for state in (state for life in before if life.at_save is not None for state in life.at_save.held):
        if state.kind in ("parameter", "buffer"):
            had.setdefault(state.name, state)
    files = next((saved for stage in reversed(lives) if (saved := _saved_tensors(stage))), _saved_tensors(before))
    rows = [_weight_row(state, files, loaded) for state in had.values() if state.trained or state.kind == "buffer"]
    lost = {row.name for row in rows if row.status != "restored"}
    bases = base_weight_rows(first, record.afterwards, [done.life_part for done in record.afterwards])
    drawn_names = {strip_peft_wrappers(name) for row in bases if row.status == "drawn" for name in row.names}
    return ResultReport(
        stages=tuple(map(_result_stage, record.afterwards)),
        is_loaded=loaded is not None,
        states=(
            *(row for row in rows if row.kind == "parameter" or row.status != "unchanged"),
            *(row for row in _reinitialized_rows(loaded, lost) if strip_peft_wrappers(row.name) not in drawn_names),
        ),
        bases=bases,
    )


def _result_stage(record: RehearsalRecord) -> ResultStage:
    lives = [rank.life for rank in record.ranks if rank.life is not None]
    devices = [device for rank in record.ranks for device in rank.devices]
    hosts = [rank.host for rank in record.ranks if rank.host is not None]
    return ResultStage(
        record.life_part,
        tuple(record.command),
        tuple(dict.fromkeys(tensor.file for tensor in _saved_tensors(lives))),
        sum(record.checkpoint_bytes.values()),
        max((device.peak_allocated_bytes for device in devices), default=0),
        max((host.peak_bytes for host in hosts), default=0),
    )


def _saved_tensors(lives: Sequence[RankRunState]) -> list[SavedTensor]:
    return [tensor for life in lives for tensor in life.saved]


def _loaded_states(lives: Sequence[RankRunState]) -> StateMoment | None:
    return next((life.at_start for life in lives if life.at_start is not None), None)


def _weight_row(state: HeldState, files: Sequence[SavedTensor], loaded: StateMoment | None) -> StateRow:
    """The row for one weight of the first run: where it is in the result."""
    own = [tensor for tensor in files if state.identity in tensor.holds]
    flat = [t for t in files if any(one[:2] == _FLAT_WEIGHTS for one in t.holds) and is_key_of(state, t.key)]
    written = tuple(dict.fromkeys(tensor.file for tensor in own or flat))

    def make_row(status: StateStatus, share: float = 0.0, read: tuple[str, ...] = ()) -> StateRow:
        return StateRow(
            state.kind, state.name, state.slot, status, state.trained, written, read, round(min(share, 1.0), 4),
            state.dtype, state.dtype,
        )  # fmt: skip

    if loaded is None:
        return make_row("restored" if written else "unchanged" if state.kind == "buffer" else "not-written")
    held = [one for one in loaded.held if one.kind in ("parameter", "buffer")]
    found = [
        (one, origin) for one in held for origin in one.origins if (origin.kind, "", origin.name) == state.identity
    ]
    size = max(math.prod(state.shape), 1)
    share = sum(origin.share * math.prod(one.shape) for one, origin in found) / size
    read = tuple(dict.fromkeys(origin.file for _, origin in found if origin.file))
    if share >= WHOLE_SHARE:
        return make_row("restored", share, read)
    alike = next((one for one in held if one.name == state.name), None)
    if not found and alike is not None:
        parts = [origin for origin in alike.origins if (origin.kind, origin.slot) == _FLAT_WEIGHTS]
        if parts:
            return make_row("restored", 1.0, tuple(dict.fromkeys(origin.file for origin in parts)))
    if found:
        return make_row("partly", share, read)
    if state.kind == "buffer" and (alike is None or not written):
        return make_row("unchanged")
    if alike is None and flat and _may_hold_flat_weights(held):
        return make_row("unknown")
    return make_row("not-read" if written else "not-written")


def _may_hold_flat_weights(held: Sequence[HeldState]) -> bool:
    """Whether the loaded model has contents of flat partitions, which may be those of a weight of another name."""
    return any((origin.kind, origin.slot) == _FLAT_WEIGHTS for one in held for origin in one.origins)


def _reinitialized_rows(loaded: StateMoment | None, lost: set[str]) -> Iterator[StateRow]:
    """Parameters of the loaded model whose values came from no file."""
    for one in loaded.held if loaded is not None else ():
        is_new = all(origin.kind == "drawn" for origin in one.origins)
        if one.kind == "parameter" and is_new and one.name not in lost:
            yield StateRow(one.kind, one.name, one.slot, "drawn-anew", False, dtype=one.dtype)
