"""Files that a program did not find on this machine but that may well be on the machine where it runs.

A dataset, weights or a checkpoint to resume from need not be on a laptop: their absence is not an error of the
program. The absence of files that come with the project (code, configs) is one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from gonogo.evidence.rehearsal.record import Failure, RehearsalRecord
from gonogo.finding import translated
from gonogo.finding.remedy import Purpose, Reason, prepare_launch, rehearse_again
from gonogo.prepare.inferred.producers import reason_with_producer

PROJECT_FILE_SUFFIXES = (".yaml", ".yml", ".py", ".toml", ".sh", ".args")
"""Suffixes of files that come with a project's code."""
_CONFIGURATION_PATTERN = re.compile(r"config|^ds_|zero|deepspeed|fsdp", re.IGNORECASE)
_TRAINING_PHASES = frozenset({"forward", "backward", "step"})

_MISSING_CHECKPOINT_PATTERN = re.compile(
    r"No valid checkpoint found in output directory \((?P<at>[^)\n]+)\)"  # transformers
    r"|Can't find a valid checkpoint at (?P<here>\S+)"
    r"|Tried to find (?P<state>\S+) but folder does not exist"  # accelerate
)
_MISSING_FILE_PATTERN = re.compile(
    r"No such file or directory: ['\"](?P<quoted>[^'\"\n]+)['\"]"
    r"|(?:unable to open file: name = |Not found: )['\"](?P<named>[^'\"\n]+)['\"]"  # h5py, SentencePiece
    r"|Unable to find ['\"](?P<sought>/[^'\"\n]+)['\"]"  # datasets
    r"|['\"](?P<tested>[^'\"\s]*/[^'\"\s]*)['\"] (?:does not|doesn't) exist"  # checks that programs make themselves
)
_NO_CHECKPOINT = Reason(
    translated(
        "it resumes from {path}, which has no checkpoint on this machine but may have one on the target "
        "machine: copy the checkpoint there, or rehearse without resuming (on a first start, the real run "
        "would fail the same way)"
    ),
    rehearse_again(purpose=Purpose.AFTER_COPY, subject="{path}"),
)
NO_SUCH_FILE = Reason(
    translated(
        "{path} does not exist on this machine, but may on the target machine: copy it, or a few rows in the "
        "same format, to that path (gonogo prepare -- COMMAND generates what it can)"
    ),
    prepare_launch(),
)
NO_PROGRAM = Reason(
    translated(
        "the program {path} is not installed on this machine, but may be on the target machine: install it here too"
    ),
    rehearse_again(purpose=Purpose.AFTER_INSTALL, subject="{path}"),
)


def explain_missing_file(
    failure: Failure, folder: Path, record: RehearsalRecord, *, is_prepared: bool = False
) -> Reason | None:
    """Why a failure before training may be due to a file that only this machine lacks; None if it can't be.

    ``folder`` is the working directory of the launch; ``is_prepared``: whether ``gonogo prepare`` has generated what it
    can.
    """
    if failure.phase in _TRAINING_PHASES or failure.step:
        return None
    if match := _MISSING_CHECKPOINT_PATTERN.search(failure.message):
        path = _named_file(match)
        is_here = _is_nonempty_folder(folder / path) or record.was_written_before(path)
        return None if is_here else _NO_CHECKPOINT.format(path=path)
    match = _MISSING_FILE_PATTERN.search(failure.message)
    if match is None:
        return None
    path = _named_file(match)
    if failure.frames and os.path.basename(failure.frames[-1].path) == "subprocess.py":
        return NO_PROGRAM.format(path=path) if "/" not in path else None
    whole = Path(os.path.normpath(folder / path))
    if os.path.lexists(whole) or record.was_written_before(str(whole)):
        return None  # it exists, or only the run writes it: something else is wrong
    if is_repository_file(whole, folder):
        return None
    why = NO_SUCH_FILE.format(path=path)
    if is_prepared:
        why = Reason(why.why, rehearse_again(purpose=Purpose.AFTER_FILES, subject=path))
    return reason_with_producer(why, path, folder)


def _named_file(match: re.Match[str]) -> str:
    return next(part for part in match.groups() if part is not None)


def _is_nonempty_folder(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False


def is_repository_file(path: Path, folder: Path) -> bool:
    """Whether the project's repository should contain the file at a path."""
    if not path.is_relative_to(folder):
        return False
    return path.suffix in PROJECT_FILE_SUFFIXES or (
        path.suffix == ".json" and _CONFIGURATION_PATTERN.search(path.name) is not None
    )
