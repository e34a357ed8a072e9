"""What a library says where it refuses what a hazard names: so a log shows hazards that are otherwise seen in files.

A page declares it in a line, and its sections say the rest, why it is so and what cures it::

    refusal.says = 'is not a supported DeepSpeed Optimizer'
"""

from __future__ import annotations

from functools import cache, lru_cache

import msgspec

from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.match import collapse_whitespace
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty

_KNOWN: list[Pattern] = []
"""The words of all refusals: a log's lines are searched once for any of them."""


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The words of a refusal: of an exception, its type before them, or else of a line."""

    says: Pattern
    certainty: Certainty = Certainty.CERTAIN
    """How sure they make it as an exception's words; a line without its exception may be a quotation."""
    unless: Pattern | None = None
    """What stands in the same words where they mean something else."""

    def __post_init__(self) -> None:
        _KNOWN.append(self.says)

    def means(self, text: str) -> bool:
        """Whether these words are the refusal."""
        return self.says.search(text) is not None and (self.unless is None or self.unless.search(text) is None)

    def shown_in(self, log: FailureLog) -> tuple[LoggedError | LineMatch, Certainty] | None:
        """What in the log shows it, and how surely; another program than a training may do without what it refused."""
        at_most = Certainty.POSSIBLE if outside_training(log) else self.certainty
        for error in log.errors:
            said = collapse_whitespace(f"{error.type}: {error.message}")
            if self.says.search(said) is not None:
                return (error, at_most) if self.means(said) else None
        for line in _lines(log, len(_KNOWN)):
            if self.means(line.text):
                return line, Certainty.LIKELY if at_most is Certainty.CERTAIN else at_most
        return None


@lru_cache(maxsize=1)
def _lines(log: FailureLog, known: int) -> tuple[LineMatch, ...]:
    return tuple(log.find_all(_any_of(known)))


@cache
def _any_of(count: int) -> Pattern:
    return Pattern("|".join(f"(?:{pattern.text})" for pattern in _KNOWN[:count]))
