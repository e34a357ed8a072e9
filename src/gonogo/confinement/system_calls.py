"""Names of the system calls that are heard, by number."""

from __future__ import annotations

import os
import sys

from gonogo.confinement.inside.calls import COMMANDS, FILES, LOOKS

MACHINES = ("x86_64", "aarch64")


def can_trace_calls() -> bool:
    """Whether there is a table for this machine's processor."""
    return sys.platform.startswith("linux") and os.uname().machine in MACHINES and sys.maxsize > 1 << 32


def _names() -> dict[int, str]:
    if not can_trace_calls():
        return {}
    index = MACHINES.index(os.uname().machine)
    calls: dict[str, tuple[int | None, int | None]] = {**FILES, **LOOKS, **COMMANDS}
    return {number: name for name, numbers in calls.items() if (number := numbers[index]) is not None}


NAMES = _names()
