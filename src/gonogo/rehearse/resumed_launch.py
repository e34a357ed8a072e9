"""A launch that resumes from a checkpoint which isn't here: the rehearsal makes one as the launch would have."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.rehearse.ranks.rank_options import LIFE_DEFAULT
from gonogo.rehearse.request import RehearsalRequest

STAGES = ("train", "save", "kill", "resume")
_RESUME_OPTION_PATTERN = re.compile(r"(?:--)?resume[_-]from[_-]checkpoint")
_SAVE_OPTION_PATTERN = re.compile(r"(?:--)?save[_-]steps")
_NO_PATH_PATTERN = re.compile(r"(?i)true|false|yes|no|none|null|auto|last|latest|best|\d+|.*[$*{}].*|.*://.*|")
"""Values that don't name a folder."""


@dataclass(frozen=True)
class MissingCheckpoint:
    """The checkpoint that a command names."""

    path: str
    first_command: list[str]
    """The command that would have written it: it doesn't resume, and saves within the rehearsed steps."""


def missing_checkpoint(command: Sequence[str], steps: int) -> MissingCheckpoint | None:
    """The checkpoint from which a command resumes; None if it doesn't, or if the checkpoint is here."""
    path, first = "", list[str]()
    for name, value, words in _options(command):
        if name and _RESUME_OPTION_PATTERN.fullmatch(name):
            path = value
        elif name and _SAVE_OPTION_PATTERN.fullmatch(name) and value.isdecimal() and int(value) > steps:
            first += [f"{name}={steps}"] if len(words) == 1 else [name, str(steps)]
        else:
            first += words
    if _NO_PATH_PATTERN.fullmatch(path) or os.path.lexists(path):
        return None
    return MissingCheckpoint(path, first)


def _options(command: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Each option of either kind with its value and its words; any other word by itself, without a name."""
    at = 0
    while at < len(command):
        name, equals, value = command[at].partition("=")
        known = _RESUME_OPTION_PATTERN.fullmatch(name) or _SAVE_OPTION_PATTERN.fullmatch(name)
        if known and equals:
            yield name, value, [command[at]]
        elif known and name.startswith("--") and at + 1 < len(command) and not command[at + 1].startswith("-"):
            yield name, command[at + 1], list(command[at : at + 2])
            at += 1
        else:
            yield "", "", [command[at]]
        at += 1


def with_life_of_resume(request: RehearsalRequest, *, own_ranks: bool) -> RehearsalRequest:
    """The request with both lives, where it is for one and its command resumes from a checkpoint that isn't here.

    ``own_ranks``: the user didn't say which ranks.
    """
    if request.life or request.ray is not None or request.viewers or request.probe_only:
        return request
    if missing_checkpoint(request.command, request.steps) is None:
        return request
    return replace(request, life=STAGES, ranks=LIFE_DEFAULT if own_ranks else request.ranks)


def give_name(tree: Path, record: RehearsalRecord, path: str) -> str | None:
    """Rename what the first life saved to the checkpoint's name; the name that it had, or None if nothing fits."""
    target = os.path.normpath(os.path.join(record.cwd, path))
    lives = [rank.life for rank in record.ranks if rank.life is not None]
    files = [os.path.normpath(os.path.join(record.cwd, one.file)) for life in lives for one in life.saved if one.file]
    beside = f"{os.path.dirname(target)}/"
    folders = [f"{beside}{file[len(beside) :].partition('/')[0]}" for file in files if file.startswith(beside)]
    saved = folders[0] if folders else os.path.commonpath(list(map(os.path.dirname, files))) if files else ""
    if not saved or record.cwd.startswith(saved) or not os.path.isdir(f"{tree}{saved}"):
        return None
    if saved != target:
        os.makedirs(os.path.dirname(f"{tree}{target}"), exist_ok=True)
        os.rename(f"{tree}{saved}", f"{tree}{target}")
        record.checkpoint_bytes = {
            f"{target}{file[len(saved) :]}" if file.startswith(f"{saved}/") else file: size
            for file, size in record.checkpoint_bytes.items()
        }
    return os.path.relpath(saved, record.cwd)
