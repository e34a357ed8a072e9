"""Kills in the middle of a save: what is on disk after each write, and how the program resumes from it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from gonogo.confinement.trees import copy_entry, copy_tree, is_whiteout, make_whiteout, unhide_below
from gonogo.evidence.rehearsal.failures import shorten_exception_message
from gonogo.evidence.rehearsal.life_table import life_report
from gonogo.evidence.rehearsal.lives import FileEvent, is_at_or_below
from gonogo.evidence.rehearsal.record import Failure, RankRecord, RehearsalRecord
from gonogo.finding import Text, translated
from gonogo.finding.lives.life_report import InterruptedResume, Interruption, LifeReport
from gonogo.finding.lives.state_names import state_text
from gonogo.finding.text import join_texts

_MAX_MOMENTS = 16
"""The most moments that are tried; each needs a rehearsal of its own."""
_MAX_MESSAGE_CHARS = 120
"""The length to which an exception's message is cut."""
_MAX_LOST = 3
"""States that are named as lost."""
_FILE_ERRORS = ("FileNotFoundError", "NotADirectoryError", "OSError")
"""Errors of a missing file, which the record of what couldn't be rehearsed names instead of them."""
_NOTHING = Text("", "")
_DATA = translated("training data")
_READ_STATUSES = ("restored", "other-dtype", "partly")
_LOST_STATUSES = ("partly", "not-read", "not-written", "other-state", "drawn-anew")


@dataclass(frozen=True)
class SaveMoment:
    """A moment of a save, between two writes or in the middle of one."""

    number: int
    """The index of the last event that has happened; with ``is_alone``, of the first that has not."""
    torn: bool = False
    """Whether only half of that event's bytes have been written."""
    is_alone: bool = False
    """Whether one rank was killed before the event, and the others went on up to the next collective."""

    def indices_of_past_events(self, events: Sequence[FileEvent]) -> tuple[int, ...]:
        """The indices of the events that have happened."""
        if not self.is_alone:
            return (*range(self.number + 1),)
        killed = events[self.number]
        return tuple(
            number
            for number, one in enumerate(events)
            if (number < self.number if one.rank == killed.rank else one.collectives <= killed.collectives)
        )


def write_events(first: RehearsalRecord, tree: Path, below: Path | None = None) -> list[FileEvent]:
    """The writes of all ranks in order, each file when it is first opened; only files that exist at the end.

    ``below``: the tree on which they were made; what was removed from it is an event as well.
    """
    lives = [(rank.rank, rank.life) for rank in first.ranks if rank.life is not None]
    every = [replace(event, rank=rank) for rank, life in lives for event in life.file_events]
    seen: dict[tuple[str, str, bool], FileEvent] = {}
    for event in sorted(every, key=lambda one: one.at):
        seen.setdefault((event.path, event.renamed_from, event.is_removed), event)
    events = list(seen.values())
    return [
        one
        for number, one in enumerate(events)
        if (
            below is not None and os.path.lexists(_path_in_tree(below, one.path))
            if one.is_removed
            else _exists_at_end(tree, one.path, events[number + 1 :])
        )
    ]


def _exists_at_end(tree: Path, path: str, later: Sequence[FileEvent]) -> bool:
    for event in later:
        if event.renamed_from and is_at_or_below(path, event.renamed_from):
            path = event.path + path[len(event.renamed_from) :]
    return os.path.lexists(_path_in_tree(tree, path)) and not is_whiteout(_path_in_tree(tree, path))


def _path_in_tree(tree: Path, path: str) -> str:
    return f"{tree}{path}"


def save_moments(events: Sequence[FileEvent], with_state: set[str], earlier: Collection[str] = ()) -> list[SaveMoment]:
    """The moments after each file up to the last but one, and during files with state.

    They begin with the first file in a folder that gets state, or where state of the ``earlier`` save is removed.
    Where several ranks write, also those at which one of them was killed before a file, unless the same files are
    there at another moment.
    """
    folders = {os.path.dirname(file) for file in with_state}
    begins = next(
        (
            number
            for number, one in enumerate(events)
            if (
                _contains_any(one.path, earlier)
                if one.is_removed
                else one.is_meanwhile or os.path.dirname(one.path) in folders
            )
        ),
        None,
    )
    if begins is None:
        return []
    between = [SaveMoment(number) for number in range(begins, len(events) - 1)]
    torn = [
        SaveMoment(number, torn=True)
        for number in range(begins, len(events))
        if events[number].path in with_state and not events[number].is_removed
    ]
    known = {frozenset(one.indices_of_past_events(events)) for one in between}
    alone = []
    for moment in (SaveMoment(number, is_alone=True) for number in range(begins, len(events))):
        happened = frozenset(moment.indices_of_past_events(events))
        begun = any(number >= begins for number in happened)
        if begun and len(happened) < len(events) and happened not in known and _is_possible(events, happened):
            known.add(happened)
            alone.append(moment)
    return [*sorted([*between, *torn], key=lambda one: (one.number, not one.torn)), *alone]


def _contains_any(path: str, files: Collection[str]) -> bool:
    return any(is_at_or_below(file, path) for file in files)


def _is_possible(events: Sequence[FileEvent], happened: Collection[int]) -> bool:
    """Whether no file was written into a folder that has not yet got its name."""
    names = [one.path for number, one in enumerate(events) if number not in happened and one.renamed_from]
    return not any(events[number].path.startswith(f"{name}/") for number in happened for name in names)


def restore_tree_at(
    tree: Path, target: Path, events: Sequence[FileEvent], moment: SaveMoment, below: Path | None = None
) -> None:
    """Copy the tree as it was at a moment, by undoing later events in reverse order.

    ``below``: the tree with which the run began; what the undone events replaced or removed is taken from it.
    """
    copy_tree(tree, target)
    happened = frozenset(moment.indices_of_past_events(events))
    for number in reversed(range(len(events))):
        if number not in happened:
            _undo(events[number], target)
            if below is not None:
                _restore_entry(events[:number], events[number].path, below, target)
    for event in (events[number] for number in happened if events[number].is_removed):
        place = _path_in_tree(target, event.path)
        if os.path.lexists(event.path) and not os.path.lexists(place):  # something else got its name later
            make_whiteout(place)
    if moment.torn:
        place = _path_in_tree(target, events[moment.number].path)
        os.truncate(place, os.path.getsize(place) // 2)


def _undo(event: FileEvent, target: Path) -> None:
    place = _path_in_tree(target, event.path)
    if event.renamed_from:
        os.makedirs(os.path.dirname(_path_in_tree(target, event.renamed_from)), exist_ok=True)
        os.rename(place, _path_in_tree(target, event.renamed_from))
    elif os.path.isfile(place) or (event.is_removed and is_whiteout(place)):
        os.unlink(place)
    elif event.is_removed and os.path.isdir(place):  # made again since: what was below is there once more
        unhide_below(place)


def _restore_entry(before: Sequence[FileEvent], path: str, below: Path, target: Path) -> None:
    """Copy what was at the path after the events ``before``, if it is older than all of them."""
    name = _original_name(before, path)
    source, place = Path(_path_in_tree(below, name or path)), Path(_path_in_tree(target, path))
    if name is None or not os.path.lexists(source):
        return
    if source.is_dir() and not source.is_symlink():
        copy_tree(source, place)
    elif not os.path.lexists(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        copy_entry(source, place, source.lstat())


def _original_name(events: Sequence[FileEvent], path: str) -> str | None:
    """What the entry at ``path`` was called before the events; None if they wrote, moved or removed it."""
    for event in reversed(events):
        if is_at_or_below(path, event.path):
            if event.is_removed or not event.renamed_from:
                return None
            path = event.renamed_from + path[len(event.path) :]
        elif event.renamed_from and is_at_or_below(path, event.renamed_from):
            return None
    return path


@dataclass(frozen=True)
class _KilledSave:
    """A save during which the run is killed at various moments, with the files that it wrote."""

    saved: RehearsalRecord
    """The life that saved."""
    whole: LifeReport
    """The resume from the complete checkpoint."""
    tree: Path
    events: list[FileEvent]
    earlier: frozenset[str] = frozenset()
    """The files with state of the save before."""
    below: Path | None = None
    """The tree with which the life began, if another one saved before."""

    def moments(self) -> list[SaveMoment]:
        """All moments of this save at which a kill is simulated."""
        return save_moments(self.events, _files_with_state(self.saved), self.earlier)

    def resume_from_each_moment(
        self,
        scratch: Path,
        resume: Callable[[Path], RehearsalRecord],
        classify: Callable[[RehearsalRecord, SaveMoment], tuple[InterruptedResume, Text]],
        deadline: float,
    ) -> Iterator[Interruption]:
        """Resume from the state at each moment until the deadline."""
        longest = 0.0
        for number, moment in enumerate(_select_moments(self.moments())):
            began = time.monotonic()
            if began + longest > deadline:
                break
            target = scratch / f"interrupted-{number}"
            restore_tree_at(self.tree, target, self.events, moment, self.below)
            resumed = resume(target)
            kind, why = classify(resumed, moment)
            yield _to_interruption(self.events, moment, kind, why, _first_step(resumed, kind))
            longest = max(longest, time.monotonic() - began)


def rehearse_interruptions(
    first: RehearsalRecord,
    second: RehearsalRecord,
    tree: Path,
    scratch: Path,
    resume: Callable[[Path], RehearsalRecord],
    deadline: float,
) -> None:
    """Resume the program from the state at each moment of its save; stores the results in ``second``."""
    whole = life_report(second)
    events = write_events(first, tree)
    if whole is None or not whole.trains_on:
        second.moments_not_tried = len(save_moments(events, _files_with_state(first)))
        return
    save = _KilledSave(first, whole, tree, events)
    second.interruptions = list(
        save.resume_from_each_moment(scratch, resume, lambda record, _: _classify_resume(record, whole), deadline)
    )
    second.moments_not_tried = len(save.moments()) - len(second.interruptions)


def rehearse_later_interruptions(
    later: RehearsalRecord,
    second: RehearsalRecord,
    complete: RehearsalRecord,
    trees: tuple[Path, Path],
    scratch: Path,
    resume: Callable[[Path], RehearsalRecord],
    deadline: float,
) -> None:
    """The same for the save of ``later``, the resumed run, which has the first checkpoint beside it.

    ``complete`` is the resume after this save, ``trees`` are those of both saves.
    """
    earlier, whole = life_report(second), life_report(complete)
    if earlier is None or whole is None or not whole.trains_on:
        return
    before = second.first_life
    files = frozenset(_files_with_state(before)) if before is not None else frozenset()
    save = _KilledSave(later, whole, trees[1], write_events(later, trees[1], trees[0]), files, trees[0])

    def classify_later_resume(record: RehearsalRecord, moment: SaveMoment) -> tuple[InterruptedResume, Text]:
        written = set(_files_written_by(save.events, moment))
        return _classify_later_resume(record, whole, earlier, written)

    second.later_interruptions = list(save.resume_from_each_moment(scratch, resume, classify_later_resume, deadline))


def _files_with_state(record: RehearsalRecord) -> set[str]:
    """The files in which a life saved state; all that it wrote, where it saved to memory and wrote that itself."""
    found: set[str] = set()
    for life in (rank.life for rank in record.ranks if rank.life is not None):
        names = {one.file for one in life.saved}
        found |= {*(names - {""}), *(life.written if "" in names else ())}
    return {os.path.normpath(os.path.join(record.cwd, name)) for name in found}


def _files_written_by(events: Sequence[FileEvent], moment: SaveMoment) -> list[str]:
    """The files that had been written by a moment of a save, under the names that they had then."""
    paths: list[str] = []
    for event in (events[number] for number in moment.indices_of_past_events(events)):
        source = event.renamed_from
        if source:
            paths = [event.path + path[len(source) :] if is_at_or_below(path, source) else path for path in paths]
        if not event.is_removed:
            paths.append(event.path)
    return paths


def _classify_later_resume(
    record: RehearsalRecord, whole: LifeReport, earlier: LifeReport, written: set[str]
) -> tuple[InterruptedResume, Text]:
    """The result of a resume with two saves on disk, the later of which wrote these files."""
    kind, why = _classify_resume(record, whole)
    life = life_report(record)
    if kind in ("raises", "unknown", "anew") or life is None:
        return kind, why
    of_save: dict[bool, list[Text]] = {True: [], False: []}
    for row in life.states:
        files = {os.path.normpath(os.path.join(record.cwd, file)) for file in row.read_from}
        if files and row.status in _READ_STATUSES:
            of_save[bool(files & written)].append(state_text(row.name, row.slot))
    had = {(row.kind, row.name): row.resumed for row in earlier.counters}
    if of_save[True]:
        old = of_save[False] + [
            Text(row.name, row.name)
            for row in life.counters
            if row.status in ("restarted", "differs") and row.resumed and row.resumed == had.get((row.kind, row.name))
        ]
        if whole.data == "goes-on" and life.data in ("from-the-start", "seen-again"):
            old.append(_DATA)
        half = any(_lost_states(life, whole, counters=False)) or not old
        return (kind, why) if half else ("mixed", _join_first_names(old))
    lost = list(_lost_states(life, earlier, counters=False))
    lost += [
        Text(row.name, row.name) for row in life.counters if row.resumed != had.get((row.kind, row.name), row.resumed)
    ]
    return ("half", _join_first_names(lost)) if lost else ("earlier", _NOTHING)


def _select_moments(every: Sequence[SaveMoment]) -> list[SaveMoment]:
    """The moments to try: those between two writes take precedence, then those of one rank, each evenly spread."""
    chosen: list[SaveMoment] = []
    for kind in (
        [one for one in every if not one.torn and not one.is_alone],
        [one for one in every if one.is_alone],
        [one for one in every if one.torn],
    ):
        count = min(len(kind), _MAX_MOMENTS - len(chosen))
        chosen += [kind[number * len(kind) // count] for number in range(count)]
    return [one for one in every if one in chosen]


def _to_interruption(
    events: Sequence[FileEvent], moment: SaveMoment, kind: InterruptedResume, why: Text, step: int | None
) -> Interruption:
    """A moment and the result of resuming from it, as the report shows them."""
    last, number = moment.indices_of_past_events(events)[-1], moment.number if moment.is_alone else moment.number + 1
    following = events[number] if number < len(events) else None
    return Interruption(
        events[last].path,
        following.path if following is not None else "",
        moment.torn,
        kind,
        why.en,
        why.zh if why.zh != why.en else "",
        step,
        events[moment.number].rank if moment.is_alone else None,
        events[last].is_removed,
        following is not None and following.is_removed,
    )


def _classify_resume(record: RehearsalRecord, whole: LifeReport) -> tuple[InterruptedResume, Text]:
    """The result of a resume, and the error or the lost states that show it."""
    failed = next(
        (rank for rank in record.ranks if rank.failure is not None and _is_failure_of_resume(rank, rank.failure)), None
    )
    if failed is not None and failed.failure is not None:
        message = shorten_exception_message(failed.failure.message.partition("\n")[0], _MAX_MESSAGE_CHARS)
        error = f"{failed.failure.type}: {message}"
        return "raises", Text(error, error)
    life = life_report(record)
    if life is None or not life.trains_on or any(rank.unsupported for rank in record.ranks):
        return "unknown", _NOTHING
    lost = list(_lost_states(life, whole))
    read = [row for row in life.states if row.status in _READ_STATUSES]
    counted = any(row.status == "restored" and row.saved for row in life.counters)
    if not read and not counted:
        return "anew", _NOTHING
    if not lost:
        return "whole", _NOTHING
    return "half", _join_first_names(lost)


def _join_first_names(names: Sequence[Text]) -> Text:
    return join_texts([*names[:_MAX_LOST], *([Text("…", "…")] if len(names) > _MAX_LOST else [])], comma_zh=", ")


def _first_step(record: RehearsalRecord, kind: InterruptedResume) -> int | None:
    """The step with which a resume begins: that of its optimizer, or else its scheduler's."""
    if kind == "anew":
        return 0
    life = life_report(record) if kind in ("whole", "half", "mixed", "earlier") else None
    for counter in ("optimizer", "scheduler") if life is not None else ():
        rows = [row for row in life.counters if row.kind == counter and row.saved] if life is not None else []
        if rows:
            return max(int(row.resumed or 0) for row in rows)
    return None


def _is_failure_of_resume(rank: RankRecord, failure: Failure) -> bool:
    """Whether the program itself raised the failure, or a file that the kill left missing caused it."""
    if rank.outcome == "raised":
        return True
    error = failure.type.rpartition(".")[2]
    is_file = error in _FILE_ERRORS
    return any(
        one.what.startswith(f"{error}: ") or (is_file and one.what != "" and one.what in failure.message)
        for one in rank.unsupported
    )


def _lost_states(life: LifeReport, whole: LifeReport, *, counters: bool = True) -> Iterator[Text]:
    """The states that are restored from the complete checkpoint but not here; without ``counters``, tensors alone."""
    restored = {(row.kind, row.slot, row.name) for row in whole.states if row.status == "restored"}
    for row in life.states:
        if row.status in _LOST_STATUSES and (row.kind, row.slot, row.name) in restored:
            yield state_text(row.name, row.slot)
    if not counters:
        return
    counted = {(row.kind, row.name) for row in whole.counters if row.status == "restored"}
    for counter in life.counters:
        if counter.status in ("restarted", "differs") and (counter.kind, counter.name) in counted:
            yield Text(counter.name, counter.name)
    if whole.data == "goes-on" and life.data not in ("goes-on", "unknown"):
        yield _DATA
