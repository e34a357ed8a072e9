"""A flag for gonogo's own work, so that what it builds is not taken for part of the program."""

from __future__ import annotations


class InternalWork:
    """Set while gonogo generates a checkpoint in place of a missing one."""

    now = False
