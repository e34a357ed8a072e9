"""The commands that a shell script runs: a whole script, a part of a file, or the argument of ``bash -c``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from gonogo.evidence.shell.compound import evaluate_compound
from gonogo.evidence.shell.shell import Shell, ShellCommand
from gonogo.evidence.shell.state import State, Variable
from gonogo.evidence.shell.substitution import substitution_output
from gonogo.evidence.shell.text import ShellWord
from gonogo.evidence.source_file import Place, SourceFile
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
    posix: bool = False,
    made_before: bool = False,
) -> list[ShellCommand]:
    """The commands that a script runs, in order. If ``arguments`` is None, it is evaluated without any.

    If ``part`` is given, only these bytes of the source are the script. ``notes`` collects what wasn't followed.
    ``posix``: ``sh`` runs it. ``made_before``: programs that have run before may have made files.

    What it changes into or sources and is not here is taken to be where the run is, unless that can't be: then the
    commands are those that a shell comes to without it, and the others are marked as never run.
    """

    def run_script(*, strict: bool) -> Shell:
        shell = Shell(source, initial_variables, substitution_output, evaluate_compound)
        shell.strict, shell.posix, shell.made_before = strict, posix, made_before
        state = State(cwd)
        state.cwd_known = cwd_known
        state.variables = dict(environment or {})
        if arguments is not None:
            state.positional, state.arguments_given = tuple(arguments), True
        try:
            if part is None:
                shell.run(state)
            else:
                root = shell.parse_part(*part)
                with shell.limit_reading(part[1]):
                    shell.statements(root.children if root is not None else (), state)
                    shell.at_exit(state)
        except RecursionError:
            pass
        return shell

    shell = run_script(strict=False)
    if notes is not None:
        notes += shell.notes
    if any(one.sure for one in shell.absent):
        return _mark_commands_never_reached(shell.commands, run_script(strict=True))
    return shell.commands


def _mark_commands_never_reached(commands: list[ShellCommand], strict: Shell) -> list[ShellCommand]:
    """The commands as a run without arguments reaches them, with those that it never reaches marked."""
    reached: dict[tuple[str, int, int], list[ShellCommand]] = {}
    for command in strict.commands:
        reached.setdefault(_place_key(command.place), []).append(command)
    failed = [_place_key(one.place) for one in strict.absent if one.sure]
    found: list[ShellCommand] = []
    taken: set[tuple[str, int, int]] = set()
    for command in commands:
        key = _place_key(command.place)
        if key in reached:
            found += reached[key] if key not in taken else []
            taken.add(key)
            continue
        why = next((one for one in reversed(command.absent) if _place_key(one.place) in failed), None)
        found.append(msgspec.structs.replace(command, never=why))
    return found


def _place_key(place: Place) -> tuple[str, int, int]:
    return place.source.path, place.start, place.end


def read_word(
    word: ShellWord, outer_command: ShellCommand, environment: dict[str, Variable], initial_variables: dict[str, str]
) -> list[ShellCommand]:
    """The commands of ``bash -c WORD`` in an outer script, with their places in that script if written literally."""
    shell = Shell(word.place.source, initial_variables, substitution_output, evaluate_compound)
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
