"""A launch command that was given as one string: its words, or a shell that reads it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from gonogo.finding import translated
from gonogo.finding.errors import UserError

_SHELL_SYNTAX_PATTERN = re.compile(r"[|&;<>()$`\\\n*?~]|^\s*\w+=")
_UNCLOSED_QUOTE = translated(
    "the command {command} has a quote that is not closed: give it word by word, for example: bash launch.sh"
)


def words_of(command: str | Sequence[str]) -> list[str]:
    """The words of a command. One string, or a lone word with blanks that names no file, is split as a shell would.

    What only a shell understands (``cd run && torchrun …``, ``NAME=value …``) is handed to one. Raises UserError.
    """
    if not isinstance(command, str):
        words = list(command)
        if len(words) != 1 or not re.search(r"\s", words[0].strip()) or os.path.exists(words[0]):
            return words
        command = words[0]
    if not command.strip():
        return []
    try:
        words = shlex.split(command)
    except ValueError:
        raise UserError(_UNCLOSED_QUOTE.format(command=command[:80])) from None
    return ["bash", "-c", command] if _SHELL_SYNTAX_PATTERN.search(command) else words
