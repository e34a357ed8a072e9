"""The texts of the page in both languages, by the names used in its script and markup."""

from __future__ import annotations

from gonogo.finding.text import Text, load_texts
from gonogo.finding.words import PHASE_NAMES
from gonogo.rehearse.display import SECOND_PASS, STATES

WORDS: dict[str, Text] = {
    "second pass": SECOND_PASS,
    **{f"phase {name}": text for name, text in PHASE_NAMES.items()},
    **{f"state {name}": text for name, text in STATES.items()},
    **load_texts(__file__),
}
"""``**…**`` marks bold text."""
