"""Public threads that look like a failure, as lines: where it is, what its author called it, what it was."""

from __future__ import annotations

from gonogo.finding.log_answer import SimilarThread
from gonogo.report.untrusted import clean_line
from gonogo.report.words import colon


def title_of(thread: SimilarThread) -> str:
    """What the thread's author called it, free of what a terminal would obey; empty where that is not known."""
    return clean_line(thread.title)


def resolution_text(thread: SimilarThread, language: str) -> str:
    """What settled it, and the hazard whose page tells more; empty where neither is known."""
    said = [clean_line(thread.settled.in_language(language))] if thread.settled else []
    if thread.hazard:
        said.append(f"gonogo explain {clean_line(thread.hazard)}")
    return ("；" if language == "zh" else "; ").join(said)


def thread_line(thread: SimilarThread, language: str) -> str:
    """A thread in one line: ``ADDRESS: title (what settled it)``."""
    line = clean_line(thread.address)
    if title := title_of(thread):
        line += f"{colon(language)}{title}"
    if settled := resolution_text(thread, language):
        line += f"（{settled}）" if language == "zh" else f" ({settled})"
    return line
