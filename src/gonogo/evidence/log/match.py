"""Find a framework's own words in a log, however a terminal wrapped them or a reporter quoted them."""

from __future__ import annotations

from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.line import LogLine


def collapse_whitespace(text: str) -> str:
    """The text with its line breaks and runs of blanks as single blanks."""
    return " ".join(text.split())


def first_match(log: FailureLog, *words: str) -> LoggedError | LogLine | None:
    """The first exception whose message has any of the words, or else the first line that has them.

    A line counts where it advises too: PyTorch puts the error and what to do about it into one line.
    """
    for error in log.errors:
        message = collapse_whitespace(error.message)
        if any(word in message for word in words):
            return error
    for word in words:
        if log.has(word):
            return next((line for line in log.lines if word in line.text), None)
    return None


def matched_text(log: FailureLog, evidence: LoggedError | LogLine) -> str:
    """What the evidence says, in one line; of a line, with the two after it, into which it may have been wrapped."""
    if isinstance(evidence, LoggedError):
        return collapse_whitespace(evidence.message)
    return collapse_whitespace(" ".join([evidence.text, *(line.text for line in log.lines_after(evidence, 2))]))
