"""A clue as a line: its sentence, and the places that it rests on."""

from __future__ import annotations

from gonogo.finding.answer import Clue

_MAX_PLACES = 3


def said_of(clue: Clue, language: str) -> str:
    """``rank 0 is in … (run.log:3)``."""
    places = list(dict.fromkeys(f"{place.path}:{place.line}" for place in clue.places))[:_MAX_PLACES]
    sentence = clue.text.in_language(language)
    if not places:
        return sentence
    return f"{sentence}（{'，'.join(places)}）" if language == "zh" else f"{sentence} ({', '.join(places)})"
