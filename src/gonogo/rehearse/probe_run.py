"""Runs a first worker of the launch up to its first batch, to find what the files alone don't tell."""

from __future__ import annotations

from dataclasses import replace

from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.finding import UserError
from gonogo.prepare.packages.consent import InstallNotConfirmed
from gonogo.rehearse.progress import OnProgress
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse


def run_probe(request: RehearsalRequest, on_progress: OnProgress | None = None) -> RankRecord:
    """The worker's record, which also holds an error of the launch itself. Raises KeyboardInterrupt for Ctrl-C."""
    request = replace(request, probe_only=True, steps=1, keep=None)
    try:
        record = rehearse(request, on_progress)
    except InstallNotConfirmed:
        raise
    except UserError as error:
        return RankRecord(0, 0, "", "raised", user_error=(error.text.en, error.text.zh))
    if record.ranks[0].outcome == "interrupted":
        raise KeyboardInterrupt
    return record.ranks[0]
