"""The kinds of batches that each rank will read, determined on one rank, to choose ranks that represent all."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from gonogo.virtual.values.batches import describe_batch
from gonogo.virtual.values.data_mode import running_on_real_data


def shapes_by_rank(loader: Any, rank: int, world: int, count: int) -> list[str]:
    """A description of the first ``count`` batches of each rank; empty if only this rank's are known.

    It contains each tensor's name, dtype and number of dimensions, but not its lengths, which differ anyway.
    """
    dataset, collate = getattr(loader, "dataset", None), getattr(loader, "collate_fn", None)
    if dataset is None or collate is None or not hasattr(dataset, "__getitem__"):
        return []
    found = []
    with running_on_real_data():
        for other in range(world):
            indices = _batches_of_rank(loader, rank, other, world)
            if indices is None:
                return []
            kinds = [
                _batch_structure(collate([dataset[i] for i in batch])) for batch in itertools.islice(indices, count)
            ]
            found.append(" | ".join(kinds))
    return found


def _batches_of_rank(loader: Any, rank: int, other: int, world: int) -> Iterator[list[Any]] | None:
    """The indices of another rank's batches, for DistributedSampler or accelerate's BatchSamplerShard."""
    batches: Any = getattr(loader, "batch_sampler", None)
    sampler: Any = getattr(loader, "sampler", None)
    if (getattr(batches, "process_index", None), getattr(batches, "num_processes", None)) == (rank, world):
        theirs = copy.copy(batches)
        theirs.process_index = other
        return _iter_as_lists(theirs)
    if (getattr(sampler, "rank", None), getattr(sampler, "num_replicas", None)) == (rank, world):
        theirs = copy.copy(sampler)
        theirs.rank = other
        size = getattr(loader, "batch_size", None) or 1
        indices = iter(theirs)
        return iter(lambda: list(itertools.islice(indices, size)), [])
    return None


def _iter_as_lists(batches: Iterable[Any]) -> Iterator[list[Any]]:
    return (list(batch) for batch in batches)


def _batch_structure(batch: Any) -> str:
    entries = describe_batch(batch)
    return ", ".join(f"{name} {_drop_sizes(text)}" for name, text in entries)


def _drop_sizes(description: str) -> str:
    kind, bracket, shape = description.partition(" [")
    return f"{kind} {shape.count(',') + bool(shape.rstrip(']'))}d" if bracket else kind.partition(" of ")[0]
