"""The checkpoints that a run has on disk: what each save wrote and removed, and how much of the disk they need."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gonogo.evidence.rehearsal.lives import FileEvent, RankRunState, SavePlan, is_at_or_below
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding.lives.life_report import DiskNeed, SaveOnDisk, SignalledSave

WRITE_BYTES_PER_SECOND = 1e9
_HANDLINGS = ("not-passed-on", "default", "ignored", "handled")
_MOST = 0.5
"""A save that has less of its bytes left doesn't count as kept: small files that all saves write may be its own."""
_Present = dict[str, tuple[int, int]]
"""By path: the number of the save that wrote it, and its size."""


def saves_on_disk(first: RehearsalRecord) -> tuple[SaveOnDisk, ...]:
    """What each of a run's saves did to its disk, of all ranks."""
    lives = [rank.life for rank in first.ranks if rank.life is not None and rank.life.saves]
    count = max((len(life.saves) for life in lives), default=0)
    events = sorted((event for life in lives for event in life.file_events), key=lambda one: one.at)
    sizes = [_sizes_of_save(lives, number) for number in range(count)]
    other_files, extra = _not_followed(first, lives, sizes)
    present: _Present = {}
    told = []
    at = 0
    for number in range(count):
        last = max((index for index, event in enumerate(events) if event.save == number), default=at - 1)
        before, peak = _kept_saves(present, sizes), _total(present, sizes, extra)
        while at <= last:
            _apply(events[at], events[at + 1 :], present, sizes)
            peak = max(peak, _total(present, sizes, extra))
            at += 1
        kept = _kept_saves(present, sizes)
        step = max(life.saves[number].step for life in lives if number < len(life.saves))
        nbytes = sum(sizes[number].values()) + extra
        total = _total(present, sizes, extra)
        told.append(
            SaveOnDisk(
                step, len(sizes[number]) + other_files, nbytes, len(before - kept), len(kept), total, max(peak, total)
            )
        )
    return tuple(told)


def signalled_save(first: RehearsalRecord) -> SignalledSave | None:
    """What the ranks did at the job's signal: the worst of them; None if none was sent."""
    told = [rank.life.signal for rank in first.ranks if rank.life is not None and rank.life.signal is not None]
    if first.signal is None or not told:
        return None
    worst = min(told, key=lambda one: _HANDLINGS.index(one.handling))
    saved_at = max((one.saved_at for one in told if one.saved_at is not None), default=None)
    saves = saves_on_disk(first)
    rate = first.write_bytes_per_second or WRITE_BYTES_PER_SECOND
    return SignalledSave(
        first.signal.name, first.signal.seconds_left, worst.handling, worst.step, saved_at,
        None if saved_at is None or not saves else saves[-1].nbytes / rate,
    )  # fmt: skip


def disk_need(first: RehearsalRecord) -> DiskNeed | None:
    """The most that a run's checkpoints take at a time; None if nothing was saved."""
    saves = saves_on_disk(first)
    if not saves:
        return None
    each, seen = max(one.nbytes for one in saves), max(one.peak_bytes for one in saves)
    plan = next((rank.life.save_plan for rank in first.ranks if rank.life and rank.life.save_plan), SavePlan())
    if any(one.removed for one in saves):
        return DiskNeed(each, max(1, round(seen / each)), seen, True, True)
    if len(saves) > 1 and saves[-1].kept == 1:  # each save replaces the one before
        return DiskNeed(each, 1, seen, True, True)
    copies = plan.saves
    if plan.kept is not None:  # the oldest is removed when the newest is complete
        copies = min(plan.saves or plan.kept + 1, plan.kept + 1)
    if copies is None or copies <= len(saves):
        return DiskNeed(each, saves[-1].kept, seen, copies is not None, copies is not None)
    return DiskNeed(each, copies, copies * each, True, plan.is_exact or plan.kept is not None)


def _sizes_of_save(lives: Sequence[RankRunState], number: int) -> dict[str, int]:
    saves = [life.saves[number] for life in lives if number < len(life.saves)]
    return {path: size for save in saves for path, size in save.files.items()}


def _not_followed(
    first: RehearsalRecord, lives: Sequence[RankRunState], sizes: Sequence[dict[str, int]]
) -> tuple[int, int]:
    """Files and bytes that each save has besides: of ranks that weren't run, and what is left out of the files."""
    if not sizes:
        return 0, 0
    folders = {os.path.dirname(path) for path in sizes[-1]}
    known = {path for saved in sizes for path in saved}
    others = [
        size for path, size in first.checkpoint_bytes.items() if path not in known and os.path.dirname(path) in folders
    ]
    omitted = [life.saves[-1].omitted_bytes for life in lives]
    omitted += [*omitted[-1:] * (first.world_size - len(omitted))]  # ranks not run: same as the last
    return len(others), sum(others) + sum(omitted)


def _apply(event: FileEvent, later: Sequence[FileEvent], present: _Present, sizes: Sequence[dict[str, int]]) -> None:
    """Do to the files that are there what a rank did."""
    if event.is_removed:
        for path in [one for one in present if is_at_or_below(one, event.path)]:
            del present[path]
    elif event.renamed_from:
        for path in [one for one in present if is_at_or_below(one, event.path)]:
            del present[path]
        for path in [one for one in present if is_at_or_below(one, event.renamed_from)]:
            present[event.path + path[len(event.renamed_from) :]] = present.pop(path)
    elif event.save < len(sizes):
        name = event.path
        for one in later:
            if one.save == event.save and one.renamed_from and is_at_or_below(name, one.renamed_from):
                name = one.path + name[len(one.renamed_from) :]
        present[event.path] = event.save, sizes[event.save].get(name, 0)


def _kept_saves(present: _Present, sizes: Sequence[dict[str, int]]) -> set[int]:
    left = [0] * len(sizes)
    for number, size in present.values():
        left[number] += size
    return {number for number, size in enumerate(left) if size and size >= _MOST * sum(sizes[number].values())}


def _total(present: _Present, sizes: Sequence[dict[str, int]], extra: int) -> int:
    return sum(size for _, size in present.values()) + extra * len(_kept_saves(present, sizes))
