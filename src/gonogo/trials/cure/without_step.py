"""A cure's steps without one of them: the later steps' edits, moved to where their bytes then stand."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gonogo.finding import Edit
from gonogo.trials.cure.candidate import Candidate


def steps_without(steps: Sequence[Candidate], left_out: Candidate) -> list[Candidate] | None:
    """The other steps, as if that one had never been made; None where a later one changes what it wrote."""
    at = next(number for number, step in enumerate(steps) if step is left_out)
    moved = list(steps[:at])
    gone = list(left_out.edits)
    for step in steps[at + 1 :]:
        edits = [_shift_edit(edit, gone) for edit in step.edits]
        if any(edit is None for edit in edits):
            return None
        moved.append(replace(step, edits=tuple(edit for edit in edits if edit is not None)))
        # What was left out stands, for the steps after this one, where this one's edits have moved it.
        gone = [_behind(one, step.edits) for one in gone]
    return moved


def _shift_edit(edit: Edit, gone: Sequence[Edit]) -> Edit | None:
    """An edit's place before edits of the same file that were made earlier; None where they overlap."""
    shift = 0
    for one in sorted((one for one in gone if one.path == edit.path), key=lambda one: one.start):
        start = one.start + _growth([other for other in gone if other.path == one.path and other.start < one.start])
        end = start + len(one.after)
        if edit.start >= end:
            shift -= len(one.after) - len(one.before)
        elif edit.end > start:
            return None
    return replace(edit, start=edit.start + shift, end=edit.end + shift)


def _behind(gone: Edit, later: Sequence[Edit]) -> Edit:
    shift = _growth([edit for edit in later if edit.path == gone.path and edit.end <= gone.start])
    return replace(gone, start=gone.start + shift, end=gone.end + shift)


def _growth(edits: Sequence[Edit]) -> int:
    return sum(len(edit.after) - len(edit.before) for edit in edits)
