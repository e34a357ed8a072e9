"""All clues to a failure, those that say most first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gonogo.diagnose.clues.keys import of_keys
from gonogo.diagnose.clues.memory_clues import of_memory
from gonogo.diagnose.clues.numbers import of_numbers
from gonogo.diagnose.clues.order import of_order
from gonogo.diagnose.clues.ranks import of_ranks
from gonogo.diagnose.clues.setting_clues import of_settings
from gonogo.diagnose.clues.symbols import of_symbols
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding.failure import FailureFacts
from gonogo.finding.log_answer import Clue

MAX_CLUES = 8
_RULES: tuple[Callable[[FailureLog, FailureFacts], Iterator[Clue]], ...] = (
    *(of_ranks, of_memory, of_keys, of_symbols, of_numbers, of_settings, of_order),
)


def clues_of(log: FailureLog, facts: FailureFacts) -> tuple[Clue, ...]:
    """What the rules find, each sentence once."""
    found: dict[str, Clue] = {}
    for rule in _RULES:
        for clue in rule(log, facts):
            found.setdefault(clue.text.en, clue)
    return tuple(found.values())[:MAX_CLUES]
