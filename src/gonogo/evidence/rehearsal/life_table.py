"""Compares the two lives of a run: each saved state, and what became of it when training resumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

import msgspec

from gonogo.evidence.rehearsal.base_table import base_weight_rows
from gonogo.evidence.rehearsal.checkpoints.disk_use import (
    WRITE_BYTES_PER_SECOND,
    disk_need,
    saves_on_disk,
    signalled_save,
)
from gonogo.evidence.rehearsal.checkpoints.shared_memory import pinned_bytes_of_node, shm_bytes_of_node
from gonogo.evidence.rehearsal.lives import RESULT_STAGES, HeldState, RankRunState, StateKind, StateMoment, StateOrigin
from gonogo.evidence.rehearsal.record import RankRecord, RehearsalRecord
from gonogo.finding.lives.life_report import (
    BaseRow,
    CounterRow,
    CounterStatus,
    DataStatus,
    LifeCosts,
    LifeReport,
    RandomRow,
    RandomStatus,
    StateRow,
    StateStatus,
)

Identity = tuple[str, str, str]
WHOLE_SHARE, _MOST = 0.999, 0.5
"""A flat partition is padded, and its padding comes from no file, hence the lower threshold."""
_STATE_KINDS = get_args(StateKind)
_GENERATORS = ("python", "numpy", "torch", "accelerator")
_STATUSES_WORST_FIRST: tuple[StateStatus, ...] = (
    "not-written", "not-read", "other-state", "partly", "drawn-anew", "other-base", "other-dtype", "unknown",
    "unchanged", "restored",
)  # fmt: skip


def life_report(record: RehearsalRecord) -> LifeReport | None:
    """How a resumed run's state compares with the run that saved its checkpoint; None if it isn't a resumed run."""
    record = record.second_life or record
    first = record.first_life
    if first is None or record.life_part in RESULT_STAGES:
        return None
    before = [rank for rank in first.ranks if rank.life is not None]
    after = [rank for rank in record.ranks if rank.life is not None and rank.life.at_start is not None]
    saved = _saved_moment(before)
    if saved is None or not after:
        return None
    starts = [rank.life.at_start for rank in after if rank.life is not None and rank.life.at_start is not None]
    lives = [rank.life for rank in before if rank.life is not None]
    bases = base_weight_rows(first, [record], ["resume"])
    return LifeReport(
        world_before=first.world_size,
        world_after=record.world_size,
        resumed_with=tuple(record.command),
        steps_before_save=saved.step,
        trains_on=all(start.trains_on for start in starts),
        states=tuple(_correct_rows_of_other_bases(_state_rows(before, after), bases)),
        counters=tuple(_counter_rows(saved, starts[0])),
        random=tuple(_random_rows(lives, [rank.life for rank in after if rank.life is not None])),
        data=_data_status(before, after, first.world_size == record.world_size),
        files=tuple(dict.fromkeys(file for life in lives for file in life.files)),
        bytes_written=max((rank.saved_bytes for rank in first.ranks), default=0),
        interruptions=tuple(record.interruptions),
        moments_not_tried=record.moments_not_tried,
        later_interruptions=tuple(record.later_interruptions),
        bases=bases,
        costs=_life_costs(
            first, [life.save_peaks for life in lives], [r.life.resume_peaks for r in after if r.life is not None]
        ),
        saves=saves_on_disk(first),
        disk_need=disk_need(first),
        disk_bytes=first.disk_bytes,
        write_bytes_per_second=first.write_bytes_per_second or WRITE_BYTES_PER_SECOND,
        signal=signalled_save(first),
    )


def _life_costs(
    first_life: RehearsalRecord, save: Sequence[dict[str, int]], resume: Sequence[dict[str, int]]
) -> LifeCosts:
    """What saving and resuming cost: peak memory of GPU and host, bytes on disk."""

    def max_peak_bytes(peak_bytes: Sequence[dict[str, int]], *, host: bool) -> int:
        return max((peak for one in peak_bytes for device, peak in one.items() if (device == "cpu") is host), default=0)

    saves = saves_on_disk(first_life)
    return LifeCosts(
        max_peak_bytes(save, host=False), max_peak_bytes(save, host=True),
        max_peak_bytes(resume, host=False), max_peak_bytes(resume, host=True),
        saves[-1].nbytes if saves else 0, saves[-1].files if saves else 0,
        shm_bytes_of_node(first_life), pinned_bytes_of_node(first_life),
    )  # fmt: skip


def _saved_moment(ranks: Sequence[RankRecord]) -> StateMoment | None:
    return next((r.life.at_save for r in ranks if r.life is not None and r.life.at_save is not None), None)


def _state_rows(before: Sequence[RankRecord], after: Sequence[RankRecord]) -> Iterator[StateRow]:
    """A row for each state that the first run held when it saved: the worst status over the resumed ranks."""
    had: dict[Identity, HeldState] = {}
    written: dict[Identity, dict[str, None]] = {}
    for rank in before:
        life = rank.life
        if life is None:
            continue
        for state in life.at_save.held if life.at_save is not None else ():
            had.setdefault(state.identity, state)
    for tensor in (tensor for rank in before if rank.life is not None for tensor in rank.life.saved):
        named = [] if tensor.holds else [one.identity for one in had.values() if is_key_of(one, tensor.key)]
        for identity in (*tensor.holds, *named):
            written.setdefault(identity, {}).setdefault(tensor.file)
    held_by = {
        rank.rank: {state.identity: state for state in rank.life.at_start.held}
        for rank in after
        if rank.life is not None and rank.life.at_start is not None
    }
    by_weights = _has_master_weights(had)
    then = _shard_names_by_state(after)  # in the first life, only the sharding of ranks that saved is known
    same_parts = all(parts <= then.get(identity, set()) for identity, parts in _shard_names_by_state(before).items())
    made = _untracked_files([rank.life for rank in (*before, *after) if rank.life is not None])
    averages_known = any(state.kind == "average" for held in held_by.values() for state in held.values())
    for identity, state in had.items():
        if state.kind == "average" and not averages_known:
            continue  # the second life did not update them in the rehearsed steps
        found: list[tuple[int, StateRow]] = []
        for rank in after:
            now = held_by[rank.rank].get(identity)
            anywhere = any(identity in held for held in held_by.values())
            if now is None and anywhere:
                continue  # this rank holds no part of a sharded state
            found.append((rank.rank, _state_row(state, now, written, held_by, by_weights, made, same_parts)))
        worst = min(found, key=lambda pair: _STATUSES_WORST_FIRST.index(pair[1].status))[1]
        ranks = tuple(number for number, row in found if row.status == worst.status)
        yield StateRow(
            **{name: getattr(worst, name) for name in worst.__struct_fields__ if name != "ranks"}, ranks=ranks
        )


def _correct_rows_of_other_bases(rows: Iterable[StateRow], bases: Sequence[BaseRow]) -> Iterator[StateRow]:
    """The rows, with frozen weights that come from elsewhere than in training no longer called unchanged."""
    other = {
        name for row in bases if row.is_certain and row.status in ("other", "applied-before") for name in row.names
    }
    for row in rows:
        is_other = row.kind == "parameter" and row.status == "unchanged" and row.name in other
        yield msgspec.structs.replace(row, status="other-base") if is_other else row


def _shard_names_by_state(ranks: Sequence[RankRecord]) -> dict[Identity, set[str]]:
    """Of each sharded parameter, the names of its shards on all ranks: another world size has others."""
    parts: dict[Identity, set[str]] = {}
    for rank in ranks:
        moment = rank.life and (rank.life.at_save or rank.life.at_start)
        for state in moment.held if moment else ():
            if state.part and state.kind == "parameter":
                parts.setdefault(state.identity, set()).add(state.part)
    return parts


def _untracked_files(lives: Sequence[RankRunState]) -> frozenset[str]:
    """Files written since the first run began, by a process that wasn't tracked."""
    began = min((life.began for life in lives if life.part == "first"), default=0.0)
    known = {read for life in lives if life.part == "first" for read in life.unlabelled.items()}
    read = [one for life in lives if life.part == "second" for one in life.unlabelled.items()]
    return frozenset(one[0] for one in read if one[1] >= began > 0 and one not in known)


def _has_master_weights(held_states: dict[Identity, HeldState]) -> bool:
    """Whether the optimizer updates master weights, from which the parameters are copied."""
    return any(kind == "optimizer" and slot == "weights" for kind, slot, _ in held_states)


def _state_row(
    state: HeldState,
    resumed_state: HeldState | None,
    written_files: dict[Identity, dict[str, None]],
    states_by_rank: dict[int, dict[Identity, HeldState]],
    from_weight_files: bool,
    unrecorded_files: frozenset[str] = frozenset(),
    same_sharding: bool = False,
) -> StateRow:
    files = tuple(written_files.get(state.identity, ()))
    is_written = state.identity in written_files
    if not is_written and state.kind == "parameter" and from_weight_files:
        is_written = any(kind == "optimizer" and slot == "weights" for kind, slot, _ in written_files)

    def make_row(status: StateStatus, share: float = 0.0, read: tuple[str, ...] = (), holds: str = "") -> StateRow:
        return StateRow(
            state.kind, state.name, state.slot, status, state.trained, files, read, round(share, 4),
            resumed_state.dtype if resumed_state is not None else "", state.dtype, holds,
        )  # fmt: skip

    if resumed_state is None:
        return make_row("not-read" if is_written else "not-written")
    origins = [_resolve_rank_origin(state, origin) for origin in resumed_state.origins]
    for origin in tuple(origins):  # what another rank sent is what that rank holds
        if origin.kind == "rank" and origin.name.isdecimal():
            theirs = states_by_rank.get(int(origin.name), {}).get(state.identity)
            if theirs is None:
                return make_row("unknown")
            origins = [*(one for one in origins if one is not origin), *theirs.origins]
    own = [one for one in origins if _is_same_state(state, one.kind, one.slot, one.name)]
    elsewhere = [one for one in own if one.part and resumed_state.part and one.part != resumed_state.part]
    if elsewhere and len(elsewhere) == len(own) and same_sharding:
        return make_row("other-state", sum(one.share for one in own), holds=state.name)
    others = [one for one in origins if one.kind in _STATE_KINDS and one not in own]
    share = min(1.0, sum(one.share for one in own))
    read = tuple(dict.fromkeys(one.file for one in own if one.file))
    flat = state.kind == "optimizer" and (" tensor " in state.name or state.name.startswith("partition"))
    if share >= (_MOST if flat else WHOLE_SHARE):
        narrower = state.kind == "optimizer" and resumed_state.dtype != state.dtype
        return make_row("other-dtype" if narrower else "restored", share, read)
    unseen = tuple(dict.fromkeys(one.file for one in origins if one.kind == "base" and one.file in unrecorded_files))
    if unseen:
        return make_row("unknown", share, unseen)
    if state.kind == "average" and not own and all(one.kind == "parameter" for one in others):
        return make_row("not-read" if is_written else "not-written")  # it begins again, from the weights
    if others and not own:
        names = ", ".join(dict.fromkeys(" ".join(filter(None, (one.slot, one.name))) for one in others[:3]))
        return make_row("other-state", sum(one.share for one in others), holds=names)
    if own:
        return make_row("partly", share, read)
    if not state.trained:
        if not state.drawn or state.kind == "buffer":
            return make_row("not-read" if is_written and state.kind == "buffer" and files else "unchanged")
        return make_row("drawn-anew")
    return make_row("not-read" if is_written else "not-written")


def _resolve_rank_origin(state: HeldState, origin: StateOrigin) -> StateOrigin:
    """If another rank holds part of a file's tensor, identify that part by its key in the file alone."""
    if origin.kind != "rank" or not is_key_of(state, origin.key):
        return origin
    return msgspec.structs.replace(origin, kind=state.kind, slot=state.slot, name=state.name)


def is_key_of(state: HeldState, key: str) -> bool:
    """Whether a file's key contains the state's name."""
    words = f".{key}."
    return f".{state.name}." in words and (not state.slot or f".{state.slot}." in words)


def _is_same_state(state: HeldState, kind: str, slot: str, name: str) -> bool:
    """Whether the contents are the state's own. Master weights and parameters count as the same numbers."""
    if (kind, slot, name) == state.identity:
        return True
    weights = (kind == "optimizer" and slot == "weights", state.kind == "optimizer" and state.slot == "weights")
    if weights == (True, True):
        return False
    if state.kind == "parameter" and weights[0]:
        return True
    return weights[1] and kind == "parameter"


def _counter_rows(saved: StateMoment, start: StateMoment) -> Iterator[CounterRow]:
    now = {(counter.kind, counter.name): counter.value for counter in start.counters}
    for counter in saved.counters:
        resumed = now.get((counter.kind, counter.name))
        missing = (counter.kind, counter.name) not in now
        status: CounterStatus = "restored"
        if counter.value is None or (resumed is None and not missing):
            status = "unknown"
        elif missing:
            status = "restarted" if counter.kind == "optimizer" and counter.value else "unknown"
        elif resumed != counter.value:
            status = "restarted" if resumed is not None and resumed < counter.value else "differs"
        yield CounterRow(counter.kind, counter.name, counter.value, resumed, status)


def _random_rows(before: Sequence[RankRunState], after: Sequence[RankRunState]) -> Iterator[RandomRow]:
    """How the random generators' states compare after resuming."""
    for generator in _GENERATORS:
        got = {digest for life in before for digest in life.random_got.get(generator, ())}
        was_set = {digest for life in after for digest in life.random_set.get(generator, ())}
        status: RandomStatus = "restored" if got & was_set else "not-read" if got else "not-written"
        yield RandomRow(generator, status)


def _data_status(before: Sequence[RankRecord], after: Sequence[RankRecord], same_world_size: bool) -> DataStatus:
    """Which batch the resumed run starts with, compared with the one that came next in the first run."""
    lives = {rank.rank: rank.life for rank in before if rank.life is not None}
    for rank in after:
        old, new = lives.get(rank.rank), rank.life
        if old is None or new is None or not new.batches or not same_world_size:
            continue
        came_next = old.batches[old.batches_before_save :]
        seen = old.batches[: old.batches_before_save]
        if not came_next or not seen or len(set(old.batches)) < len(old.batches):
            continue
        if new.batches[0] == came_next[0]:
            return "goes-on"
        if new.batches[0] == seen[0]:
            return "from-the-start"
        return "seen-again" if new.batches[0] in seen else "other"
    return "unknown"
