"""``--ranks sample``: a few ranks that represent all, by their position in the world and the data they read."""

from __future__ import annotations

from collections.abc import Iterable

from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.finding import Text, translated
from gonogo.rehearse.launch.launch import ResolvedLaunch

SAMPLE = "sample"


def is_sample(ranks_option: str) -> bool:
    """Whether ``--ranks`` asks for a sample."""
    return ranks_option.strip().lower() == SAMPLE


def sample_ranks(launch: ResolvedLaunch) -> set[int]:
    """The first rank, the last, and the first of each node."""
    firsts: dict[int, int] = {}
    for process in launch.processes:
        firsts.setdefault(process.node, process.rank)
    return {0, launch.world_size - 1, *firsts.values()}


def add_ranks_for_batch_shapes(ranks: Iterable[int], probe_record: RankRecord) -> tuple[list[int], Text]:
    """The sample, extended by one rank for each shape of batch that it doesn't read yet, and a note about it."""
    chosen = set(ranks)
    shapes = probe_record.data_shapes
    seen = {shapes[rank] for rank in chosen if rank < len(shapes)}
    for rank, shape in enumerate(shapes):
        if shape not in seen:
            seen.add(shape)
            chosen.add(rank)
    why = translated(
        "one for each of {count} kind(s) of batch").format(count=len(seen)) if shapes else translated(
        "the other ranks' batches could not be read in advance")  # fmt: skip
    listed = ", ".join(str(rank) for rank in sorted(chosen))
    note = translated("--ranks sample chose ranks {ranks}: the first, the last, the first of each node; {why}")
    return sorted(chosen), note.format(ranks=listed, why=why)
