"""Before the first step: the ranks exchange and compare their facts, and check an all-reduce.

Everything goes through the process group's store, so that nothing can hang: a rank waits for the others for a limited
time. Whether to run the all-reduce is decided once for all ranks, by the last one to arrive or the first one to time
out, so that no rank enters it without the others.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gonogo.evidence.guarded.records import Difference, JoinRecord, RankComparisonRecord
from gonogo.guard.common.faults import harmless
from gonogo.guard.rank import facts
from gonogo.guard.tensors.census import placement_snapshot

ABSENT = "(not set)"
"""The value of a fact that a rank did not report while others did."""

if TYPE_CHECKING:
    from gonogo.guard.common.state import RankState

_TOGETHER, _ALONE = "together", "alone"
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(JoinRecord)


@harmless("the comparison of ranks")
def compare_with_other_ranks(state: RankState, point: str) -> None:
    """Report this rank's facts, record where its tensors are, and compare with the others."""
    assert state.writer is not None
    engine, model = state.engine, state.model
    stated = None
    try:
        stated = facts.make_join_record(model, engine, state.data | state.trainer_facts)
        state.writer.put(stated)
        state.writer.put(placement_snapshot(model, engine, "start"))
    finally:
        # A rank that could not collect its own facts still joins, so that the others do not wait for it.
        compared = meet_ranks(stated or JoinRecord(time.time()), point, state.options.join_seconds)
    if compared is not None:
        state.writer.put(compared)
    state.writer.flush()
    if state.options.nonfinite and model is not None:
        from gonogo.guard.tensors.nonfinite import look_for_nonfinite

        look_for_nonfinite(state, model)


def meet_ranks(
    rank_facts: JoinRecord, point: str, patience: float, check_sum: bool = True
) -> RankComparisonRecord | None:
    """Meet the other ranks at one point of the program; return the comparison, in the one rank that is to write it.

    ``patience``: how long to wait for them, in seconds. None in all other ranks, and if there is only one rank.
    """
    distributed: Any = sys.modules["torch"].distributed
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() < 2:
        return None
    began = time.monotonic()
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    store = cloned_store(distributed, point)
    store.set(f"facts/{rank}", _encoder.encode(rank_facts))
    decided, decided_here = _decide_together_or_alone(store, world_size, patience)
    checked = None
    if decided == _TOGETHER and check_sum:
        checked = _is_all_reduce_correct(distributed, rank, world_size)
    if not (rank == 0 if decided == _TOGETHER else decided_here):
        return None
    known = {other: _decoder.decode(store.get(f"facts/{other}")) for other in _arrived_ranks(store, world_size)}
    missing = tuple(other for other in range(world_size) if other not in known)
    waited = round(time.monotonic() - began, 3)
    return RankComparisonRecord(time.time(), find_differences(known), missing, waited, checked, world_size)


def cloned_store(distributed: Any, point: str) -> Any:
    """The process group's store under a prefix, over a connection of its own if possible.

    A store's connection serves one request at a time, and the program may be waiting on its own.
    """
    store = distributed.distributed_c10d._get_default_store()
    with contextlib.suppress(AttributeError, RuntimeError):  # before torch 2.8, or a store of another kind
        store = store.clone()
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return distributed.PrefixStore(f"gonogo/{restarts}/{point}", store)


def _decide_together_or_alone(store: Any, world_size: int, patience: float) -> tuple[str, bool]:
    """Whether all ranks compare together or each continues alone, and whether this rank decided it."""
    end = time.monotonic() + patience
    arrived = store.add("arrived", 1)
    pause = 0.001
    while arrived < world_size and time.monotonic() < end:
        if store.check(["decision"]):
            break
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
        arrived = store.add("arrived", 0)
    mine = f"{_TOGETHER if arrived >= world_size else _ALONE} {os.urandom(8).hex()}"
    decided = store.compare_set("decision", "", mine).decode()
    return decided.partition(" ")[0], decided == mine


def _arrived_ranks(store: Any, world_size: int) -> list[int]:
    return [rank for rank in range(world_size) if store.check([f"facts/{rank}"])]


def _is_all_reduce_correct(distributed: Any, rank: int, world_size: int) -> bool | None:
    """Whether an all-reduce over the ranks returns the expected sum.

    None if the group's backend is neither gloo nor NCCL. All ranks get the same answer.
    """
    torch: Any = sys.modules["torch"]
    backend = str(distributed.get_backend())
    if "gloo" in backend:
        device = torch.device("cpu")
    elif "nccl" in backend:
        device = torch.device("cuda", torch.cuda.current_device())
    else:
        return None
    number = torch.tensor([float(rank + 1)], device=device)
    distributed.all_reduce(number)
    return bool(abs(float(number) - world_size * (world_size + 1) / 2) < 0.5)


def find_differences(facts_by_rank: Mapping[int, JoinRecord]) -> tuple[Difference, ...]:
    """The facts that differ between ranks, sorted by name."""
    found = []
    for fact in sorted({fact for joined in facts_by_rank.values() for fact in joined.facts}):
        values = _ranks_by_value((rank, joined.facts.get(fact, ABSENT)) for rank, joined in facts_by_rank.items())
        if len(values) > 1:
            details = {rank: joined.details[fact] for rank, joined in facts_by_rank.items() if fact in joined.details}
            found.append(
                Difference(fact, values, _differing_settings(details) if len(details) == len(facts_by_rank) else {})
            )
    return tuple(found)


def _differing_settings(settings_by_rank: Mapping[int, Mapping[str, str]]) -> dict[str, dict[str, tuple[int, ...]]]:
    names = sorted({name for settings in settings_by_rank.values() for name in settings})
    compared = {
        name: _ranks_by_value((rank, settings.get(name, ABSENT)) for rank, settings in settings_by_rank.items())
        for name in names
    }
    return {name: values for name, values in compared.items() if len(values) > 1}


def _ranks_by_value(rank_values: Iterable[tuple[int, str]]) -> dict[str, tuple[int, ...]]:
    """Ranks by value, the most common value first; ties go to the value of the lowest rank."""
    ranks: dict[str, list[int]] = {}
    for rank, value in sorted(rank_values):
        ranks.setdefault(value, []).append(rank)
    return {value: tuple(of) for value, of in sorted(ranks.items(), key=lambda item: (-len(item[1]), item[1][0]))}
