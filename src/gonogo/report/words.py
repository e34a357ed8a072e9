"""The report's own vocabulary in both languages, and the formatting of sizes and counts."""

from __future__ import annotations

from gonogo.finding import Applicability, Fix, Level, Report, Text
from gonogo.finding.log_answer import Clue
from gonogo.finding.text import load_texts
from gonogo.finding.words import CATEGORIES, PHASE_NAMES, size

WORDS: dict[str, Text] = {**CATEGORIES, **PHASE_NAMES, **load_texts(__file__)}


def word(name: str, language: str) -> str:
    """The translation of a vocabulary name; unknown names are returned unchanged."""
    text = WORDS.get(name)
    return text.in_language(language) if text else name


def how_to_apply(fix: Fix) -> str | None:
    """The command that applies a fix; None if it has to be applied by hand."""
    if not fix.edits or fix.applicability is Applicability.MANUAL:
        return None
    return "gonogo check --fix" if fix.applicability is Applicability.SAFE else "gonogo check --fix --unsafe-fixes"


def finding_counts_text(report: Report, language: str) -> str:
    """How many findings the report has, such as ``1 error, 2 warnings``; empty if it has none."""
    counts = []
    for level in Level:
        if count := sum(finding.level is level for finding in report.findings):
            name = word(level.value, language)
            counts.append(f"{count} 个{name}" if language == "zh" else f"{count} {name}{'s' if count > 1 else ''}")
    return ("，" if language == "zh" else ", ").join(counts)


def colon(language: str) -> str:
    """The colon of the language, followed by a space in English."""
    return "：" if language == "zh" else ": "


def size_or_unknown(count: int | None, language: str) -> str:
    """A size in bytes, or ``not stated`` for None."""
    return size(count) if count is not None else word("unknown", language)


_MAX_LOCATIONS = 3


def clue_line(clue: Clue, language: str) -> str:
    """A clue as one line: ``rank 0 is in … (run.log:3)``."""
    places = list(dict.fromkeys(f"{place.path}:{place.line}" for place in clue.places))[:_MAX_LOCATIONS]
    sentence = clue.text.in_language(language)
    if not places:
        return sentence
    return f"{sentence}（{'，'.join(places)}）" if language == "zh" else f"{sentence} ({', '.join(places)})"
