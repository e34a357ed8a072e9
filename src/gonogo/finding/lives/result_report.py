"""What is made from a checkpoint in a report: converted, merged, loaded, and which trained weights it contains."""

from __future__ import annotations

import msgspec

from gonogo.finding.lives.life_report import BaseRow, StateRow


class ResultStage(msgspec.Struct, frozen=True):
    """A program that reads the checkpoint."""

    stage: str
    """``convert``, ``merge`` or ``serve``."""
    command: tuple[str, ...]
    files: tuple[str, ...] = ()
    """Files with weights that it wrote."""
    bytes_written: int = 0
    gpu_bytes: int = 0
    """Peak allocation on a GPU."""
    host_bytes: int = 0


class ResultReport(msgspec.Struct, frozen=True):
    """The final result, and which of the trained weights it contains."""

    stages: tuple[ResultStage, ...]
    is_loaded: bool
    """Whether the last stage loaded and called a model; else the report is about the files' contents."""
    states: tuple[StateRow, ...]
    """The first life's weights; and with ``drawn-anew`` those of the loaded model that are in no file."""
    bases: tuple[BaseRow, ...] = ()
    """The frozen weights, which each stage loaded or drew again."""
