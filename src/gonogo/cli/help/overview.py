"""The overview that ``gonogo`` and ``gonogo --help`` print: the commands by purpose. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from gonogo.finding import Text, translated
from gonogo.report.page import Page, StyledText, column_width


class CommandSummary(msgspec.Struct, frozen=True):
    """A command's name, summary and example."""

    name: str
    says: Text
    example: str


class CommandGroup(msgspec.Struct, frozen=True):
    """The commands for one purpose."""

    title: Text
    commands: tuple[CommandSummary, ...]


_INTRODUCTION = translated(
    "gonogo tells you whether a multi-GPU training run will work, before you rent the GPUs: GO, NO-GO or CANNOT-TELL."
)
_START_HERE = translated("Start here")
_FIRST_STEPS = (
    (translated("Put your launch command after --; nothing is run:"), "gonogo check -- bash launch.sh"),
    (translated("Run the program itself, on virtual GPUs:"), "gonogo rehearse --gpus 8xH100-80G -- bash launch.sh"),
    (translated("Did a run die? Diagnose its log:"), "gonogo diagnose train.log"),
)
COMMAND_GROUPS = msgspec.json.decode(
    Path(__file__).with_name("commands.json").read_bytes(), type=tuple[CommandGroup, ...]
)
_HELP_HINT = translated(
    "gonogo COMMAND --help lists the options of a command; gonogo --version shows the version. --lang zh: 中文"
)
_INDENT = 2


def asks_for_overview(words: Sequence[str]) -> bool:
    """Whether the arguments ask for the overview: none at all, or only for help."""
    return all(word in ("-h", "--help", "help") for word in words)


def print_overview(page: Page, language: str) -> None:
    """Print what to do first, then each group of commands, with a sentence and an example for each command."""
    page.line(StyledText(_INTRODUCTION.in_language(language)))
    page.line()
    page.line(StyledText(_START_HERE.in_language(language), "bold"))
    for text, typed in _FIRST_STEPS:
        page.line(StyledText(text.in_language(language)), indent=_INDENT)
        page.line(StyledText(typed, "cyan"), indent=2 * _INDENT, wrap=False)
    column = max(map(column_width, command_names())) + 2 * _INDENT
    for group in COMMAND_GROUPS:
        page.line()
        page.line(StyledText(group.title.in_language(language), "bold"))
        for command in group.commands:
            label = StyledText.assemble(" " * _INDENT, (command.name, "bold"))
            label.append(" " * (column - column_width(label.plain)))
            page.labelled(label, column, StyledText(command.says.in_language(language)))
            page.line(StyledText(command.example, "cyan"), indent=column, wrap=False)
    page.line()
    page.line(StyledText(_HELP_HINT.in_language(language), "dim"))


def command_names() -> Iterator[str]:
    """The names of all commands, in the order of the overview."""
    for group in COMMAND_GROUPS:
        for command in group.commands:
            yield command.name
