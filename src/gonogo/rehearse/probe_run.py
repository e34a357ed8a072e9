"""Runs a first worker of the launch up to its first batch, to find what the files alone don't tell."""

from __future__ import annotations

from dataclasses import replace

from gonogo.evidence.environment.hardware import DEFAULT_ACCELERATOR
from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.finding.errors import UserError
from gonogo.prepare.packages.consent import InstallNotConfirmed
from gonogo.rehearse.progress import OnProgress
from gonogo.rehearse.ranks.world import GpuCountUnknown
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse

DEFAULT_NODE = f"8x{DEFAULT_ACCELERATOR}"
"""Used if neither the command nor the user specifies the accelerators of a node: the number doesn't matter here."""


def run_probe(request: RehearsalRequest, on_progress: OnProgress | None = None) -> RankRecord:
    """The worker's record, which also holds an error of the launch itself. Raises KeyboardInterrupt for Ctrl-C."""
    request = replace(request, probe_only=True, steps=1, keep=None)
    try:
        try:
            record = rehearse(request, on_progress)
        except GpuCountUnknown:
            record = rehearse(replace(request, gpus=DEFAULT_NODE), on_progress)
    except InstallNotConfirmed:
        raise
    except UserError as error:
        return RankRecord(0, 0, "", "raised", user_error=(error.text.en, error.text.zh))
    if record.ranks[0].outcome == "interrupted":
        raise KeyboardInterrupt
    return record.ranks[0]
