"""Error messages with which libraries reject what a hazard describes, so that hazards of files are found in logs too.

A page declares the message in one line; its sections explain the cause and the cures::

    refusal.says = 'is not a supported DeepSpeed Optimizer'
"""

from __future__ import annotations

from functools import cache, lru_cache

import msgspec

from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty

_KNOWN: list[Pattern] = []
"""The messages of all hazards: the lines of a log are searched for all of them in one pass."""


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The message with which a library rejects something, as a pattern for ``type: message`` or for a line."""

    says: Pattern
    certainty: Certainty = Certainty.CERTAIN
    """The certainty of an exception with this message; a line alone is at most likely: it may quote the message."""
    unless: Pattern | None = None
    """Matches texts that contain the same words but mean something else."""

    def __post_init__(self) -> None:
        _KNOWN.append(self.says)

    def matches(self, text: str) -> bool:
        """Whether a text is this error message."""
        return self.says.search(text) is not None and (self.unless is None or self.unless.search(text) is None)

    def find_evidence(self, log: FailureLog) -> tuple[LoggedError | LineMatch, Certainty] | None:
        """The error or line that shows it, and how certain it is: at most possible if the program doesn't train."""
        at_most = Certainty.POSSIBLE if is_outside_training(log) else self.certainty
        for error in log.errors:
            text = f"{error.type}: {error.flat_message}"
            if self.says.search(text) is not None:
                return (error, at_most) if self.matches(text) else None
        for line in _lines_with_refusals(log, len(_KNOWN)):
            if self.matches(line.text):
                return line, Certainty.LIKELY if at_most is Certainty.CERTAIN else at_most
        return None


@lru_cache(maxsize=1)
def _lines_with_refusals(log: FailureLog, known: int) -> tuple[LineMatch, ...]:
    return tuple(log.find_all(_alternation_of_refusals(known)))


@cache
def _alternation_of_refusals(count: int) -> Pattern:
    return Pattern("|".join(f"(?:{pattern.text})" for pattern in _KNOWN[:count]))
