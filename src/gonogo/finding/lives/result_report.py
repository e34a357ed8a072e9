"""What a report says of what is made of a checkpoint: converted, merged, loaded, and what of the training is in it."""

from __future__ import annotations

import msgspec

from gonogo.finding.lives.life_report import StateRow


class ResultStage(msgspec.Struct, frozen=True):
    """A program that reads what was saved."""

    stage: str
    """``convert``, ``merge`` or ``serve``."""
    command: tuple[str, ...]
    files: tuple[str, ...] = ()
    """Files with weights that it wrote."""
    bytes_written: int = 0
    gpu_bytes: int = 0
    """The most that was allocated on a GPU."""
    host_bytes: int = 0


class ResultReport(msgspec.Struct, frozen=True):
    """The result, and which of the trained weights it has."""

    stages: tuple[ResultStage, ...]
    is_loaded: bool
    """Whether a model was loaded and called in the end; else what the files have is told."""
    states: tuple[StateRow, ...]
    """The first life's weights; and with ``drawn-anew`` those of the loaded model that are in no file."""
