"""Formats ranks for sentences."""

from __future__ import annotations

from collections.abc import Iterable

from gonogo.finding import Text


def format_ranges(ranks: Iterable[int]) -> str:
    """``0-2, 5``, in order."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def ranks_text(ranks: Iterable[int]) -> Text:
    """``rank 3``, ``ranks 0-2, 5``."""
    numbers = set(ranks)
    ranges = format_ranges(numbers)
    return Text(f"rank {ranges}" if len(numbers) == 1 else f"ranks {ranges}", f"rank {ranges}")


def capitalize_text(text: Text) -> Text:
    """The text with a capital first letter."""
    return Text(text.en[:1].upper() + text.en[1:], text.zh)
