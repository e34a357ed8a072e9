"""What a run's saves hold in a node's memory beside the ranks' own: /dev/shm, and pages that are pinned."""

from __future__ import annotations

from collections.abc import Callable

from gonogo.evidence.rehearsal.lives import RankRunState, RankSave
from gonogo.evidence.rehearsal.record import RehearsalRecord

SHM = "/dev/shm/"


def shm_bytes_of_node(first: RehearsalRecord) -> int:
    """The most that the ranks of a node have in /dev/shm: tensors that they share, and files that they save there."""
    return _of_node(first, lambda life: life.shm_bytes + max(map(_bytes_of_files, life.saves), default=0))


def pinned_bytes_of_node(first: RehearsalRecord) -> int:
    """What the ranks of a node have pinned when they have saved."""
    return _of_node(first, lambda life: life.pinned_bytes)


def _bytes_of_files(save: RankSave) -> int:
    return sum(size for path, size in save.files.items() if path.startswith(SHM))


def _of_node(first: RehearsalRecord, bytes_of: Callable[[RankRunState], int]) -> int:
    """The sum over the ranks of the first node; one that wasn't rehearsed has as much as the last that was."""
    known = [bytes_of(one.life) for one in first.ranks if one.life is not None and one.rank < first.ranks_per_node]
    return sum(known) + max(0, first.ranks_per_node - len(known)) * known[-1] if known else 0
