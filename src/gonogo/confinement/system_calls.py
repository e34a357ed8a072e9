"""Names of the system calls that are heard, by number."""

from __future__ import annotations

import os
import sys

from gonogo.confinement.inside.calls import COMMANDS

MACHINES = ("x86_64", "aarch64")


def _names() -> dict[int, str]:
    """Empty where there is no table for this machine's processor."""
    if not (sys.platform.startswith("linux") and os.uname().machine in MACHINES and sys.maxsize > 1 << 32):
        return {}
    index = MACHINES.index(os.uname().machine)
    return {number: name for name, numbers in COMMANDS.items() if (number := numbers[index]) is not None}


NAMES = _names()
