"""A public thread that looks like the failure of a log, for one whose cause is not certain."""

from __future__ import annotations

import msgspec

from gonogo.finding.text import Text


class SimilarThread(msgspec.Struct, frozen=True):
    """A thread at ``address``; ``title`` is its author's words, or empty where it is not known.

    ``settled`` is in a short phrase of ours what it shows or what settled it, ``hazard`` the hazard that it was of:
    each empty where that is not known. ``likeness`` is 0 to 1.
    """

    address: str
    title: str
    settled: Text | None
    hazard: str
    likeness: float
