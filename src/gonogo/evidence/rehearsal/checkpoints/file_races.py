"""Files of a checkpoint that two ranks use at the same time, without a barrier between them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Literal

import msgspec

from gonogo.evidence.rehearsal.lives import FileEvent, is_at_or_below
from gonogo.evidence.rehearsal.record import RehearsalRecord

RaceKind = Literal["written-twice", "removed-twice", "removed-in-use", "read-while-written"]
_Use = tuple[Literal["write", "read", "remove"], str, FileEvent]


class FileRace(msgspec.Struct, frozen=True):
    """Two ranks at one path, in no order."""

    kind: RaceKind
    path: str
    """The file, or what is removed."""
    ranks: tuple[int, ...]
    """For ``removed-in-use`` and ``read-while-written``: first those that remove or write."""


def file_races(first: RehearsalRecord) -> list[FileRace]:
    """The races of a run's save, of the ranks that were rehearsed together; one per path and kind.

    Two ranks are put in order by a collective of all ranks, and may be by any other communication before the later
    one: then nothing is said.
    """
    lives = [(rank.rank, rank.life) for rank in first.ranks if rank.life is not None]
    state = {os.path.normpath(os.path.join(first.cwd, one.file)) for _, life in lives for one in life.saved if one.file}
    names = {os.path.basename(file) for file in state}
    written = (path for _, life in lives for save in life.saves for path in save.files)
    folders = {os.path.dirname(file) for file in (*state, *written) if os.path.basename(file) in names} - {first.cwd}
    by_moment: dict[int, dict[int, list[_Use]]] = defaultdict(lambda: defaultdict(list))
    for rank, life in lives:
        for event in (*life.file_events, *life.file_reads):
            for use in _uses(event, is_read=event in life.file_reads):
                if not event.others_since and _is_of_checkpoint(use[1], state, folders):
                    by_moment[event.collectives][rank].append(use)
    found: dict[tuple[RaceKind, str], dict[int, None]] = {}
    for by_rank in by_moment.values():
        for (a, ours), (b, theirs) in combinations(sorted(by_rank.items()), 2):
            for kind, path, ranks in _races(a, ours, b, theirs, state):
                found.setdefault((kind, path), {}).update(dict.fromkeys(ranks))
    return [FileRace(kind, path, tuple(ranks)) for (kind, path), ranks in found.items()]


def _uses(event: FileEvent, *, is_read: bool) -> Iterator[_Use]:
    if is_read:
        yield "read", event.path, event
    elif event.is_removed:
        yield "remove", event.path, event
    elif event.renamed_from:
        yield "remove", event.renamed_from, event
    elif not event.appends:
        yield "write", event.path, event


def _is_of_checkpoint(path: str, state: set[str], folders: set[str]) -> bool:
    return path in state or any(is_at_or_below(path, folder) or is_at_or_below(folder, path) for folder in folders)


def _races(
    a: int, ours: Sequence[_Use], b: int, theirs: Sequence[_Use], state: set[str]
) -> Iterator[tuple[RaceKind, str, tuple[int, int]]]:
    for what, path, _ in ours:
        for other, their_path, _ in theirs:
            both = {what, other}
            if both == {"remove"}:
                if path == their_path:
                    yield "removed-twice", path, (a, b)
            elif "remove" in both:
                removed, used = (path, their_path) if what == "remove" else (their_path, path)
                if is_at_or_below(used, removed):
                    yield "removed-in-use", used, (a, b) if what == "remove" else (b, a)
            elif path == their_path and both == {"write"} and path in state:
                yield "written-twice", path, (a, b)
            elif path == their_path and both == {"write", "read"}:
                yield "read-while-written", path, (a, b) if what == "write" else (b, a)
