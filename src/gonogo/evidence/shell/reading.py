"""A shell script being evaluated: its text, its syntax tree, and variables set from outside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gonogo.evidence.shell.parse import parse_script
from gonogo.evidence.shell.state import State
from gonogo.evidence.shell.text import Piece
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Text, translated

MAX_STEPS = 10_000
_SET_AT_RUNTIME = translated("`${name}` is set only when the script runs")
_SET_BY_SLURM = translated("Slurm sets `${name}` when the job runs")
_SBATCH_DIRECTIVE_REASON = translated("set by the job's #SBATCH lines")


class ShellReader:
    """The source and the settings with which shell words are expanded."""

    def __init__(
        self,
        source: SourceFile,
        initial_variables: dict[str, str] | None,
        get_command_output: Callable[[ShellReader, Any, State], Sequence[Piece] | None],
    ) -> None:
        self.source = source
        self.script_name = os.path.abspath(source.path)
        """``$0``."""
        self.sourced = self.script_name
        """``${BASH_SOURCE[0]}``."""
        self.given = initial_variables or {}
        """Variables that something outside the script sets, such as slurm."""
        self.limit: int | None = None
        """Where the part of the source ends that is read; None: at its end."""
        self.substitutions = 0
        """How many ``$(…)`` are being read, each inside the one before."""
        self.steps = 0
        """Statements and ``$(…)`` that were evaluated, of at most :data:`MAX_STEPS`."""
        self.posix = False
        """Run by ``sh``: it ends where ``.`` finds no file."""
        self.made_before = False
        """Whether a program has run that may have made files."""
        self._main = source
        self.printed = get_command_output
        """What ``$(…)`` prints, where it is one of the few commands whose output the files settle."""

    @property
    def in_main_script(self) -> bool:
        """Whether what is read is the script itself: nothing that it sources, evaluates or hands to a shell."""
        return self.source is self._main and self.limit is None

    def note(self, place: Place, reason: Text) -> None:
        """Record something that gonogo can't follow; only kept where a whole script is read."""

    def place(self, node: Any) -> Place:
        """The span of a node."""
        return Place(self.source, node.start_byte, node.end_byte)

    def text(self, node: Any) -> str:
        """A node's source text."""
        return self.source.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def special_variable(self, name: str, state: State) -> tuple[str | None, Text | None]:
        """A variable that the script doesn't set: its value from the shell, Slurm or the caller, and the reason."""
        if name in self.given:
            return self.given[name], _SBATCH_DIRECTIVE_REASON
        if name == "PWD":
            return (str(state.cwd), None) if state.cwd_known else (None, _SET_AT_RUNTIME.format(name=name))
        if name == "HOME":
            return os.path.expanduser("~"), None
        if name == "BASH_SOURCE":
            return self.sourced, None
        if name.startswith("SLURM_"):
            return None, _SET_BY_SLURM.format(name=name)
        if name in ("RANDOM", "HOSTNAME", "USER", "UID", "SECONDS", "?", "$", "!", "-", "_", "OLDPWD", "LINENO"):
            return None, _SET_AT_RUNTIME.format(name=name)
        return None, None

    @contextmanager
    def limit_reading(self, end: int) -> Iterator[None]:
        """Within the block, the source ends at offset ``end``."""
        before, self.limit = self.limit, end
        try:
            yield
        finally:
            self.limit = before

    @contextmanager
    def limit_to_substitution(self, end: int) -> Iterator[None]:
        """Within the block, the source ends at ``end``, and one more level of ``$(…)`` is counted."""
        self.substitutions += 1
        try:
            with self.limit_reading(end):
                yield
        finally:
            self.substitutions -= 1

    def parse_part(self, start: int, end: int) -> Any:
        """A part of the source, parsed in place: the script inside ``bash -c '…'``. None if it can't be parsed."""
        return parse_script(self.source, (start, end))
