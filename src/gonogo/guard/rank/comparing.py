"""`gonogo.compare_ranks`: in which versions, settings and numbers the ranks of a running training differ."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec.structs import replace

from gonogo.evidence.guarded.records import Compared, Difference
from gonogo.finding import translated
from gonogo.finding.errors import UserError

_calls = 0


def compare_ranks(
    model: Any = None, *, facts: dict[str, object] | None = None, timeout: float = 60.0
) -> tuple[Difference, ...]:
    """The facts in which the ranks differ; empty where they agree. Every rank has to call it, and gets the same answer.

    Compared are the versions of the training stack, the driver, CUDA, the GPU, NCCL's variables, torch's seed; with a
    ``model`` (or a DeepSpeed engine) its structure, its numbers of parameters and the engine's config; and ``facts`` of
    your own, whose values are compared as text. Each :class:`Difference` has ``fact``, ``values`` (ranks by value,
    that of most ranks first) and, for a config, ``details`` (the same by setting).

    ``timeout`` is in seconds. Raises UserError where no process group is initialised, and TimeoutError, which names
    the ranks that did not call it, where not all have within the time.
    """
    global _calls
    import torch

    from gonogo.guard.rank.facts import joined
    from gonogo.guard.rank.joining import meet

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise UserError(
            translated("compare_ranks: there is no process group yet; call torch.distributed.init_process_group first")
        )
    engine = model if hasattr(model, "global_steps") else None
    stated = joined(engine.module if engine is not None else model, engine, {})
    stated = replace(stated, facts=stated.facts | {name: str(value) for name, value in (facts or {}).items()})
    _calls += 1
    compared = meet(stated, f"compare_ranks {_calls}", timeout, check_sum=False)
    answer = _broadcast_comparison(compared, f"compare_ranks {_calls}", timeout)
    if answer.missing:
        ranks = ", ".join(str(rank) for rank in answer.missing)
        raise TimeoutError(f"compare_ranks: no call from rank {ranks} within {timeout:g} s")
    return answer.differences


def _broadcast_comparison(comparison: Compared | None, point: str, timeout: float) -> Compared:
    """What one rank found out, in all of them."""
    import datetime

    import torch

    from gonogo.guard.rank.joining import cloned_store

    if torch.distributed.get_world_size() == 1:
        return Compared(time.time())
    store = cloned_store(torch.distributed, point)
    if comparison is not None:
        store.set("answer", msgspec.json.encode(comparison))
        return comparison
    store.wait(["answer"], datetime.timedelta(seconds=timeout))
    return msgspec.json.decode(store.get("answer"), type=Compared)
