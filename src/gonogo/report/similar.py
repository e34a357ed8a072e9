"""Public threads similar to a failure, as lines: address, title, resolution."""

from __future__ import annotations

from gonogo.finding.log_answer import SimilarThread
from gonogo.report.untrusted import clean_line
from gonogo.report.words import colon


def clean_title(thread: SimilarThread) -> str:
    """The thread's title, free of terminal escapes; empty if unknown."""
    return clean_line(thread.title)


def resolution_text(thread: SimilarThread, language: str) -> str:
    """What resolved it, and the hazard whose page has details; empty if neither is known."""
    text = [clean_line(thread.settled.in_language(language))] if thread.settled else []
    if thread.hazard:
        text.append(f"gonogo explain {clean_line(thread.hazard)}")
    return ("；" if language == "zh" else "; ").join(text)


def thread_line(thread: SimilarThread, language: str) -> str:
    """A thread as one line: ``ADDRESS: title (resolution)``."""
    line = clean_line(thread.address)
    if title := clean_title(thread):
        line += f"{colon(language)}{title}"
    if settled := resolution_text(thread, language):
        line += f"（{settled}）" if language == "zh" else f" ({settled})"
    return line
