"""Split a launch command given as one string into words."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from gonogo.finding import UserError, translated

_SHELL_SYNTAX_PATTERN = re.compile(r"[|&;<>()$`\\\n*?~]|^\s*\w+=")
_UNCLOSED_QUOTE = translated(
    "the command {command} has an unclosed quote: give it as separate words, for example: bash launch.sh"
)


def split_command(command: str | Sequence[str]) -> list[str]:
    """The words of a command. A string, or a single word with blanks that is not a file, is split as a shell would.

    A command with shell syntax (``cd run && torchrun …``, ``NAME=value …``) becomes ``bash -c``. Raises UserError for
    an unclosed quote.
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
