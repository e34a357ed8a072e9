"""What was found out about rows that are no GO: each is shown true with real DeepSpeed, or its reason named."""

from __future__ import annotations

from typing import Any

NOTES: dict[tuple[str, str], tuple[str, str]] = {}
"""By model type and class: the note in English and in Chinese."""


def noted(row: dict[str, Any], language: str) -> str:
    """The note on a row, or nothing."""
    english, chinese = NOTES.get((row["model_type"], row["class"]), ("", ""))
    return english if language == "en" else chinese
