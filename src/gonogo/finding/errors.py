"""Errors that the user can fix: shown as one line, never as a traceback."""

from __future__ import annotations

from gonogo.finding import Text


class UserError(Exception):
    """Unusable input. ``text`` names the file, the value and the fix, in both languages; the exit status is 2."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text
