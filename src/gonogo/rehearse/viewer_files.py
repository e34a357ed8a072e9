"""The files for viewers that were requested, and checks that they can be written before the rehearsal starts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gonogo.evidence.paths import exists, is_folder
from gonogo.finding import UserError, translated

_INVALID_OUTPUT_PATH = translated("{option} {path}: {why}")


@dataclass(frozen=True)
class ViewerFiles:
    """The paths that ``--memory-viz``, ``--trace`` and ``--flight-recorder`` name."""

    memory_viz: Path | None = None
    trace: Path | None = None
    flight_recorder: Path | None = None

    @property
    def needs_events(self) -> bool:
        """Whether the ranks have to record individual events."""
        return self.memory_viz is not None or self.trace is not None

    def __bool__(self) -> bool:
        return self.needs_events or self.flight_recorder is not None

    def check_writable(self) -> None:
        """Raise UserError for a path that can't be written."""
        for option, path in (("--memory-viz", self.memory_viz), ("--trace", self.trace)):
            if path is not None:
                _check_file(option, path)
        if self.flight_recorder is not None:
            _check_folder("--flight-recorder", self.flight_recorder)

    def check_ranks(self, ranks: int) -> None:
        """Raise UserError if a flight recorder dump is requested but a single rank is rehearsed."""
        if self.flight_recorder is not None and ranks < 2:
            raise UserError(
                translated(
                    "--flight-recorder compares ranks, but only one is rehearsed: add --ranks all, or --ranks sample"
                )
            )


def write_error(option: str, path: Path, error: OSError) -> UserError:
    """The error to raise if the system doesn't allow writing."""
    return UserError(_INVALID_OUTPUT_PATH.format(option=option, path=path, why=error.strerror or error))


def _check_file(option: str, path: Path) -> None:
    if is_folder(path):
        raise UserError(
            _INVALID_OUTPUT_PATH.format(option=option, path=path, why=translated("is a folder: give a file"))
        )
    _check_parent(option, path)


def _check_folder(option: str, path: Path) -> None:
    if exists(path) and (not is_folder(path) or any(path.iterdir())):
        why = translated("give a new or empty folder")
        raise UserError(_INVALID_OUTPUT_PATH.format(option=option, path=path, why=why))
    _check_parent(option, path)


def _check_parent(option: str, path: Path) -> None:
    folder = path.absolute().parent
    why = None
    if not is_folder(folder):
        why = translated("the folder {folder} does not exist").format(folder=folder)
    elif not os.access(folder, os.W_OK):
        why = translated("the folder {folder} is not writable").format(folder=folder)
    if why is not None:
        raise UserError(_INVALID_OUTPUT_PATH.format(option=option, path=path, why=why))
