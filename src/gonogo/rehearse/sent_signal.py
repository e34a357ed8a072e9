"""The signal that a run's first life gets, through the launcher that stands between a scheduler and the program."""

from __future__ import annotations

from msgspec.structs import replace

from gonogo.evidence.rehearsal.lives import JobSignal
from gonogo.rehearse.job_signal import parse_job_signal, signal_of_job
from gonogo.rehearse.launch.launch import PassedSignals
from gonogo.rehearse.request import RehearsalRequest


def signal_of_request(request: RehearsalRequest, passed: PassedSignals | None) -> JobSignal | None:
    """The signal that a run's first life gets through its launcher, of a request whose save isn't killed by itself."""
    if not request.life or request.kill_between_writes or request.saves > 1:
        return None
    sent = parse_job_signal(request.signal) or signal_of_job(request.command)
    if sent is None or passed is None:
        return sent
    return replace(sent, launcher=passed.launcher, passed=passed.names, grace_seconds=passed.seconds)
