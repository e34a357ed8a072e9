"""The commands that a shell script runs: a whole script, a part of a file, or the argument of ``bash -c``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gonogo.evidence.shell.compound import follow
from gonogo.evidence.shell.shell import Shell, ShellCommand
from gonogo.evidence.shell.state import State, Variable
from gonogo.evidence.shell.substitution import output
from gonogo.evidence.shell.text import ShellWord
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Text

__all__ = ["ShellCommand", "read_shell", "read_word"]


def read_shell(
    source: SourceFile,
    cwd: Path,
    *,
    cwd_known: bool = False,
    arguments: Sequence[ShellWord] | None = None,
    environment: dict[str, Variable] | None = None,
    initial_variables: dict[str, str] | None = None,
    part: tuple[int, int] | None = None,
    notes: list[Text] | None = None,
) -> list[ShellCommand]:
    """The commands that a script runs, in order. If ``arguments`` is None, it is evaluated without any.

    If ``part`` is given, only these bytes of the source are the script. ``notes`` collects what wasn't followed.
    """
    shell = Shell(source, initial_variables, output, follow)
    state = State(cwd)
    state.cwd_known = cwd_known
    state.variables = dict(environment or {})
    if arguments is not None:
        state.positional, state.arguments_given = tuple(arguments), True
    try:
        if part is None:
            shell.run(state)
        else:
            root = shell.parsed_part(*part)
            with shell.limit_reading(part[1]):
                shell.statements(root.children if root is not None else (), state)
                shell.at_exit(state)
    except RecursionError:
        pass
    if notes is not None:
        notes += shell.notes
    return shell.commands


def read_word(
    word: ShellWord, outer_command: ShellCommand, environment: dict[str, Variable], initial_variables: dict[str, str]
) -> list[ShellCommand]:
    """The commands of ``bash -c WORD`` in an outer script, with their places in that script if written literally."""
    shell = Shell(word.place.source, initial_variables, output, follow)
    state = State(outer_command.cwd)
    state.cwd_known = outer_command.cwd_known
    # Text in double quotes is expanded by the outer shell, where all its variables are known.
    state.variables = {**outer_command.shell, **environment}
    state.written = dict(outer_command.written)
    state.copied = dict(outer_command.copied)
    try:
        shell.run_text([word], state, outer_command.place)
    except RecursionError:
        return []
    return shell.commands
