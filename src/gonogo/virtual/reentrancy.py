"""Whether gonogo itself is at work: then what it builds is no part of the program."""

from __future__ import annotations


class InternalWork:
    """Set while a checkpoint is made that stands in for one that isn't there."""

    now = False
