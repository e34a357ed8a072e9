"""``--help`` of one command in one language: of its docstring the paragraphs of that language, of its options too."""

from __future__ import annotations

import re
from typing import Any

from gonogo.cli.help.chinese import HELP_ZH

_CHINESE = re.compile("[\u4e00-\u9fff]")
_EXAMPLE = "For instance:"


def speak(command: Any, language: str) -> None:
    """Have the ``--help`` of a command of click's, or of the copy that Typer brings, speak the language."""
    command.help = _paragraphs(command.help or "", language)
    if language != "zh":
        return
    command.epilog = None  # exit statuses, which the report's documents tell in Chinese
    for parameter in command.params:
        said = getattr(parameter, "help", None)
        if isinstance(said, str):
            parameter.help = HELP_ZH.get(said, said)


def _paragraphs(text: str, language: str) -> str:
    """In Chinese what it does, and the examples, which are commands; in English all but the Chinese sentence."""
    every = text.split("\n\n")
    chinese = [one for one in every if _CHINESE.search(one)]
    if language != "zh" or not chinese:
        return "\n\n".join(one for one in every if one not in chinese)
    examples = [
        one.replace(f"{_EXAMPLE} ", "例如：").replace("    or: ", "    或：") for one in every if _EXAMPLE in one
    ]
    return "\n\n".join([*chinese, *examples])
