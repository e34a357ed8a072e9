"""Finds known messages of frameworks in a log, even if a terminal wrapped them or an issue quotes them."""

from __future__ import annotations

from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.line import LogLine


def collapse_whitespace(text: str) -> str:
    """The text with line breaks and runs of whitespace replaced by single blanks."""
    return " ".join(text.split())


def first_match(log: FailureLog, *words: str) -> LoggedError | LogLine | None:
    """The first exception whose message contains any of the words, else the first line that does.

    Lines that give advice count too: PyTorch puts the error and its remedy on one line.
    """
    for error in log.errors:
        message = error.flat_message
        if any(word in message for word in words):
            return error
    for word in words:
        if log.has(word):
            return next((line for line in log.lines if word in line.text), None)
    return None


def matched_text(log: FailureLog, evidence: LoggedError | LogLine) -> str:
    """The evidence as one line of text; a log line includes the two after it, onto which it may have been wrapped."""
    if isinstance(evidence, LoggedError):
        return evidence.flat_message
    return collapse_whitespace(" ".join([evidence.text, *(line.text for line in log.lines_after(evidence, 2))]))
