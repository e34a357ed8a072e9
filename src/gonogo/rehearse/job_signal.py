"""The signal that a scheduler sends before it ends a job: ``--signal USR1@120``, or the script's ``#SBATCH`` lines."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path

from gonogo.evidence.launch.launchers.slurm import sbatch_directives
from gonogo.evidence.paths import is_file
from gonogo.evidence.rehearsal.lives import JobSignal
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError, translated

_SLURM_SECONDS = 60
"""What Slurm takes without ``@SECONDS``."""
_PATTERN = re.compile(r"(?:R:)?(?P<name>\w+)(?:@(?P<seconds>\d+))?")
_CAUGHT = ("SIGKILL", "SIGSTOP")


def parse_job_signal(given: str | None) -> JobSignal | None:
    """The signal of ``--signal``. Raises UserError for what is none, or can't be handled."""
    if given is None:
        return None
    found = _find_signal(given)
    if found is None:
        raise UserError(
            translated("--signal {given}: write a signal and the seconds before the end, for example USR1@120").format(
                given=given
            )
        )
    return found


def signal_of_job(command: Sequence[str]) -> JobSignal | None:
    """The signal that the first script of a command with ``#SBATCH`` lines asks for; None if it asks for none.

    One that only the batch shell gets (``B:``) is none of the program's.
    """
    for word in command:
        if is_file(Path(word)) and (options := sbatch_directives(SourceFile.read(Path(word)))):
            requested = options.get("signal")
            return (
                _find_signal(requested.string or str(requested.value))
                if requested is not None and requested.known
                else None
            )
    return None


def _find_signal(given: str) -> JobSignal | None:
    match = _PATTERN.fullmatch(given.strip().upper())
    if match is None:
        return None
    name = match["name"]
    try:
        number = signal.Signals(int(name)) if name.isdecimal() else signal.Signals[f"SIG{name.removeprefix('SIG')}"]
    except (KeyError, ValueError):
        return None
    seconds = int(match["seconds"] or _SLURM_SECONDS)
    return JobSignal(number.name, int(number), seconds) if number.name not in _CAUGHT else None
