"""What a hazard's finding in a rehearsal needs to be the real run's: the obligations of a certain NO-GO, by name."""

from __future__ import annotations

from gonogo.hazards.hazard import Hazard

NAMES = frozenset({"packages", "python", "missing", "made", "assumed", "ranks", "confinement"})
_OF_THE_WORLD = frozenset({"packages", "python", "missing", "made"})


def obligations_of(hazard: Hazard) -> frozenset[str]:
    """Those that a hazard states (:attr:`Hazard.needs`), else by how it judges.

    One that only reads an exception's words, or that speaks where nothing else explains, needs all of them. One that
    judges the record itself (which tensors an operator was given, on which devices, at which ZeRO stage) has seen the
    mechanism at work: it is wrong only where an assumed value or another rank's part, which was not there, led to it.
    """
    if hazard.needs is not None:
        return frozenset(hazard.needs)
    judges = type(hazard).in_rehearsal is not Hazard.in_rehearsal and not hazard.fallback
    return NAMES - _OF_THE_WORLD if judges else NAMES
