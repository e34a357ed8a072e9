"""Who waits for whom where nobody goes on: threads, processes, Ray's actors and ranks, as facts."""

from __future__ import annotations

from typing import Literal

import msgspec

from gonogo.finding.frame import Frame

WaitKind = Literal[
    "lock", "queue-get", "queue-put", "thread", "process", "event", "future", "actor", "coroutine", "server",
    "collective", "poll", "other",
]  # fmt: skip
"""What somebody waits for; ``poll``: looks again and again whether something has happened."""
StuckKind = Literal["", "forever", "polling"]
"""How a process stands still: ``forever`` if all its threads wait without a time limit, and nobody else can wake them;
``polling`` if some of them look again and again, or wait for a process that does nothing."""


class WaitingSide(msgspec.Struct, frozen=True):
    """One side: a thread, an actor's method or a rank, with the call in which it waits."""

    who: str
    """``MainThread``, ``Thread-1 (roll_out)``, ``Trainer.fit`` …; empty for a rank's own collective."""
    kind: WaitKind
    frames: tuple[Frame, ...]
    """The stack of the call without gonogo's frames, outermost call first."""
    whom: tuple[str, ...] = ()
    """Those that could let it go on, as far as known."""
    ended: tuple[str, ...] = ()
    """Those that could have let it go on, but have ended."""
    what: str = ""
    """The name of the collective or method."""
