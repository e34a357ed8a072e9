"""`gonogo.compare_ranks`: finds versions, settings and numbers that differ between ranks of a running training."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec.structs import replace

from gonogo.evidence.guarded.records import Difference, RankComparisonRecord
from gonogo.finding import UserError, translated

_calls = 0


def compare_ranks(
    model: Any = None, *, facts: dict[str, object] | None = None, timeout: float = 60.0
) -> tuple[Difference, ...]:
    """The facts that differ between the ranks; empty if all agree. Every rank must call it, and gets the same answer.

    Compared are the versions of the training stack, the driver, CUDA, the GPU, NCCL's variables, torch's seed; for a
    ``model`` (or a DeepSpeed engine) its structure, its numbers of parameters and the engine's config; and ``facts``
    of your own, whose values are compared as text. Each :class:`Difference` has ``fact``, ``values`` (ranks by value,
    the most common value first) and, for a config, ``details`` (the same by setting).

    ``timeout`` is in seconds. Raises UserError if no process group is initialized, and TimeoutError, which names the
    missing ranks, if not all ranks call it within that time.
    """
    global _calls
    import torch

    from gonogo.guard.rank.facts import make_join_record
    from gonogo.guard.rank.joining import meet_ranks

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise UserError(
            translated("compare_ranks: there is no process group yet; call torch.distributed.init_process_group first")
        )
    engine = model if hasattr(model, "global_steps") else None
    stated = make_join_record(engine.module if engine is not None else model, engine, {})
    stated = replace(stated, facts=stated.facts | {name: str(value) for name, value in (facts or {}).items()})
    _calls += 1
    compared = meet_ranks(stated, f"compare_ranks {_calls}", timeout, check_sum=False)
    answer = _broadcast_comparison(compared, f"compare_ranks {_calls}", timeout)
    if answer.missing:
        ranks = ", ".join(str(rank) for rank in answer.missing)
        raise TimeoutError(f"compare_ranks: no call from rank {ranks} within {timeout:g} s")
    return answer.differences


def _broadcast_comparison(comparison: RankComparisonRecord | None, point: str, timeout: float) -> RankComparisonRecord:
    """Broadcast the comparison from the one rank that made it (the others pass None) to all ranks."""
    import datetime

    import torch

    from gonogo.guard.rank.joining import cloned_store

    if torch.distributed.get_world_size() == 1:
        return RankComparisonRecord(time.time())
    store = cloned_store(torch.distributed, point)
    if comparison is not None:
        store.set("answer", msgspec.json.encode(comparison))
        return comparison
    store.wait(["answer"], datetime.timedelta(seconds=timeout))
    return msgspec.json.decode(store.get("answer"), type=RankComparisonRecord)
