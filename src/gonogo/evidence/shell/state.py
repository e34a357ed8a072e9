"""A shell's state while a script is evaluated: variables, functions, positional parameters, working folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.shell.text import Piece, ShellWord, joined_text, reason_of_pieces
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Text, translated

CONDITIONAL_VALUE_REASON = translated(
    "`{name}` depends on the condition in line {line}, which can't be decided from the files"
)
NOT_SET = translated("`${name}` is not set in the script")
CHANGED_IN_LOOP = translated("`{name}` changes in the loop on line {line}")


class Variable(msgspec.Struct, frozen=True):
    """A shell variable: a text, or an array of words if ``array`` is set."""

    pieces: tuple[Piece, ...] = ()
    place: Place | None = None
    exported: bool = False
    array: tuple[ShellWord, ...] | None = None
    unset: bool = False

    @property
    def value(self) -> str | None:
        """Its text (for an array, its first element); None if unknown."""
        if self.array is not None:
            return self.array[0].value if self.array else ""
        return joined_text(self.pieces)

    @property
    def reason(self) -> Text | None:
        """Why it is unknown, or what was assumed for it."""
        return reason_of_pieces(self.pieces)

    def is_same_value(self, other: Variable | None) -> bool:
        """Whether both hold the same known value and are exported alike."""
        if other is None or self.exported != other.exported or self.unset != other.unset:
            return False
        if self == other:
            return True
        if (self.array is None) != (other.array is None):
            return False
        if self.array is not None and other.array is not None:
            ours, theirs = [word.value for word in self.array], [word.value for word in other.array]
            return None not in ours and ours == theirs
        return self.value is not None and self.value == other.value


class ExitStatus(msgspec.Struct, frozen=True):
    """The exit status of a command: ``success`` is None if unknown."""

    success: bool | None = True
    assumed: bool = False
    """True if it depends on what the environment or the caller leaves unset."""

    ran: bool = False
    """True for a program, which is assumed to succeed; as a condition, its status is unknown."""

    def as_condition(self) -> ExitStatus:
        """The status as a condition of ``if``."""
        return UNSURE if self.ran else self

    def negated(self) -> ExitStatus:
        """The status after ``!``."""
        return ExitStatus(None if self.success is None else not self.success, self.assumed, self.ran)


SUCCESS = ExitStatus(True)
ASSUMED_SUCCESS = ExitStatus(True, ran=True)
FAILURE = ExitStatus(False)
UNSURE = ExitStatus(None)


class State:
    """A shell's state. Branches work on copies, which are merged afterwards."""

    def __init__(self, cwd: Path) -> None:
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, tuple[Any, SourceFile]] = {}
        self.positional: tuple[ShellWord, ...] = ()
        self.arguments_given = False
        """The positional parameters are known; else the script is read as it runs without arguments."""
        self.cwd = cwd
        self.cwd_known = False
        self.cwd_assumed: Path | None = None
        """The folder that the script is taken to be started in, since what it changes to lies there."""
        self.previous: Path | None = None
        """Where ``cd -`` goes back to, as far as it is known."""
        self.folders: tuple[tuple[Path, bool], ...] = ()
        """What ``pushd`` has put aside."""
        self.made: frozenset[str] = frozenset()
        """Folders that the script makes."""
        self.option_at = 0
        """Where in a word ``-abc`` ``getopts`` has come to."""
        self.export_all = False
        self.options: frozenset[str] = frozenset()
        """``nounset``, ``errexit``, ``nullglob`` …: what ``set`` and ``shopt`` switched on."""
        self.failing = False
        """An expansion under way ends the shell: a variable that is not set under ``set -u``, ``${X:?}``."""
        self.on_exit: tuple[ShellWord, ...] = ()
        """What ``trap … EXIT`` runs at the end; several if it is unknown which of them was set."""
        self.ended = False
        """``exit``: nothing after it runs."""
        self.leaving = ""
        """``return``, ``break`` or ``continue`` under way."""
        self.locals: list[dict[str, Variable | None]] = []
        self.written: dict[str, tuple[tuple[Piece, ...], Place]] = {}
        """Files that the script itself writes, by heredoc: their text and place."""
        self.copied: dict[str, str] = {}
        """What the script copies, moves or links: the new path, and the one that it is a copy of."""

    def copy(self) -> State:
        """An independent copy."""
        other = State(self.cwd)
        other.__dict__.update(self.__dict__)
        other.variables = dict(self.variables)
        other.functions = dict(self.functions)
        other.locals = [dict(frame) for frame in self.locals]
        other.written = dict(self.written)
        other.copied = dict(self.copied)
        return other

    def replace_with(self, other: State) -> None:
        """Replace this state by another one."""
        self.__dict__.update(other.__dict__)

    def set(self, name: str, variable: Variable) -> None:
        """Set a variable; an exported one stays exported."""
        before = self.variables.get(name)
        if self.export_all or (before is not None and before.exported):
            variable = msgspec.structs.replace(variable, exported=True)
        self.variables[name] = variable

    def set_unknown(self, name: str, place: Place, reason: Text) -> None:
        """Make a variable's value unknown."""
        before = self.variables.get(name)
        piece = Piece(None, place.source, place.start, place.end, reason=reason)
        exported = before is not None and before.exported
        self.variables[name] = Variable((piece,), before.place if before and before.place else place, exported)

    @property
    def separators(self) -> str:
        """The characters that separate words: ``IFS``."""
        variable = self.variables.get("IFS")
        value = variable.value if variable is not None and not variable.unset else None
        return " \t\n" if value is None else value

    @property
    def has_ended(self) -> bool:
        """Whether nothing more of the current list runs (after ``exit``, ``return``, ``break``)."""
        return self.ended or bool(self.leaving)


def merge(states: list[State], place: Place, reason: Text = CONDITIONAL_VALUE_REASON) -> State:
    """The state after one of several branches, if it is unknown which."""
    alive = [state for state in states if not state.ended] or states
    merged = alive[0].copy()
    names = dict.fromkeys(name for state in alive for name in state.variables)
    for name in names:
        found = [state.variables.get(name) for state in alive]
        first = found[0]
        if first is not None and all(first is other or first.is_same_value(other) for other in found[1:]):
            continue
        if all(other is None or other.unset for other in found):
            continue
        merged.set_unknown(name, place, reason.format(name=name, line=place.line))
        if any(other is not None and other.exported for other in found):
            merged.variables[name] = msgspec.structs.replace(merged.variables[name], exported=True)
    merged.on_exit = tuple(dict.fromkeys(word for state in states for word in state.on_exit))
    for state in alive[1:]:
        merged.functions = {**state.functions, **merged.functions}
        merged.written = {**state.written, **merged.written}
        merged.copied = {**state.copied, **merged.copied}
        merged.export_all = merged.export_all and state.export_all
        if state.cwd != merged.cwd:
            merged.cwd_known = False
        merged.made |= state.made
        merged.options &= state.options
    if len({state.leaving for state in alive}) > 1:
        merged.leaving = ""
    if len({tuple(word.value for word in state.positional) for state in alive}) > 1:
        merged.positional, merged.arguments_given = (), False
    return merged
