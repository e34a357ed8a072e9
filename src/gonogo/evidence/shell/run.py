"""A shell script, followed statement by statement without running anything."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.document.source_file import Place, SourceFile
from gonogo.evidence.shell import compound, substitution
from gonogo.evidence.shell.builtins import read_words, run_builtin
from gonogo.evidence.shell.expansion import expand, expand_words
from gonogo.evidence.shell.setting import assigned, redirected
from gonogo.evidence.shell.state import FAILURE, RAN, SUCCESS, UNSURE, State, Status, Variable, merge
from gonogo.evidence.shell.text import Piece, ShellWord, text_of
from gonogo.finding import Text
from gonogo.finding.errors import UserError

_MOST_STEPS = 20_000
_MOST_COMMANDS = 200
_DEEPEST = 40
_SET_BY_SHELL = Text("`${name}` is set only when the script runs", "`${name}` 只有在脚本运行时才有值")
_SET_BY_SLURM = Text("slurm sets `${name}` when the job runs", "`${name}` 由 slurm 在作业运行时设置")
_FROM_DIRECTIVE = Text("as the job's #SBATCH lines ask", "按作业的 #SBATCH 行")


class ShellCommand(msgspec.Struct, frozen=True):
    """A command that a script runs, after expansion."""

    words: tuple[ShellWord, ...]
    place: Place
    """The command with its redirections."""
    statement: Place
    """The whole statement that it stands in, from its first word: where a line can be put before it."""
    environment: dict[str, Variable]
    """The variables that it gets: those exported, and those set before its name."""
    prefixed: frozenset[str]
    """Names of the variables that are set before its name."""
    shell: dict[str, Variable]
    """All variables of the shell."""
    cwd: Path
    cwd_known: bool
    written: dict[str, tuple[tuple[Piece, ...], Place]]
    """The files that the script wrote before, by heredoc."""
    standard_input: tuple[Piece, ...] | None = None
    input_place: Place | None = None


@cache
def _parser() -> Any:
    import tree_sitter

    return tree_sitter.Parser(tree_sitter.Language(_grammar()))


def _grammar() -> Any:
    """tree-sitter-bash's grammar, from its extension module alone.

    Its package loads importlib.resources for query files that are not used here: 10 ms of each start.
    """
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    package = PathFinder.find_spec("tree_sitter_bash")
    folders = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("_binding", list(folders)) if folders else None
    if spec is None or spec.loader is None:
        import tree_sitter_bash

        return tree_sitter_bash.language()
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.language()


class Shell:
    """One reading of a script and of what it sources."""

    def __init__(self, source: SourceFile, given: dict[str, str] | None = None) -> None:
        self.source = source
        self.script_name = os.path.abspath(source.path)
        self.commands: list[ShellCommand] = []
        self.given = given or {}
        """Variables that something outside the script sets, such as slurm."""
        self.steps = 0
        self.silent = 0
        """While above 0 commands are not taken down: a trial of a loop, a substitution."""
        self._statement: Place | None = None
        self._depth = 0

    def place(self, node: Any) -> Place:
        """Where a node stands."""
        return Place(self.source, node.start_byte, node.end_byte)

    def text(self, node: Any) -> str:
        """A node's source text."""
        return self.source.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def special(self, name: str, state: State) -> tuple[str | None, Text | None]:
        """A variable that the script does not set: what the shell, slurm or the caller sets it to, and why."""
        if name in self.given:
            return self.given[name], _FROM_DIRECTIVE
        if name == "PWD":
            return (str(state.cwd), None) if state.cwd_known else (None, _SET_BY_SHELL.format(name=name))
        if name == "HOME":
            return os.path.expanduser("~"), None
        if name == "BASH_SOURCE":
            return self.script_name, None
        if name.startswith("SLURM_"):
            return None, _SET_BY_SLURM.format(name=name)
        if name in ("RANDOM", "HOSTNAME", "USER", "UID", "SECONDS", "?", "$", "!", "-", "_", "OLDPWD", "LINENO"):
            return None, _SET_BY_SHELL.format(name=name)
        return None, None

    def run(self, state: State) -> None:
        """Follow the script from its start."""
        tree = _parser().parse(self.source.data)
        self.statements(tree.root_node.children, state)
        if not self.commands:
            for body, source in list(state.functions.values()):
                with self.within(source):
                    self.statement(body, state.copy())

    @contextmanager
    def within(self, source: SourceFile) -> Iterator[None]:
        """Read nodes of another file for a while."""
        before, self.source = self.source, source
        try:
            yield
        finally:
            self.source = before

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Take no commands down for a while."""
        self.silent += 1
        try:
            yield
        finally:
            self.silent -= 1

    def statements(self, nodes: Sequence[Any], state: State) -> Status:
        """Follow statements in their order."""
        status = SUCCESS
        for node in nodes:
            if state.gone:
                break
            if node.is_named and node.type != "comment":
                status = self.statement(node, state)
        return status

    def statement(self, node: Any, state: State) -> Status:
        """Follow one statement."""
        self.steps += 1
        if self.steps > _MOST_STEPS or self._depth > _DEEPEST or state.gone:
            return UNSURE
        self._depth += 1
        outermost = self._statement is None or node.type in _HOLDING_STATEMENTS
        before, self._statement = self._statement, (None if outermost else self._statement)
        if node.type not in _HOLDING_STATEMENTS and self._statement is None:
            self._statement = self.place(node)
        try:
            return self._follow(node, state)
        finally:
            self._statement = before
            self._depth -= 1

    def _follow(self, node: Any, state: State) -> Status:
        kind = node.type
        if kind == "command":
            return self.command(node, state, node)
        if kind in ("variable_assignment", "variable_assignments"):
            assignments = [node] if kind == "variable_assignment" else node.named_children
            for assignment in assignments:
                self.assign(assignment, state)
            return SUCCESS
        if kind == "redirected_statement":
            return redirected(self, node, state)
        return compound.follow(self, node, state)

    def assign(self, node: Any, state: State, *, exported: bool = False) -> str | None:
        """``NAME=value``, ``NAME+=value``, ``NAME=(…)``, ``NAME[i]=value``. Answers the name."""
        found = assigned(self, node, state)
        if found is None:
            return None
        name, variable = found
        state.set(name, variable)
        if exported:
            state.variables[name] = msgspec.structs.replace(state.variables[name], exported=True)
        return name

    def command(
        self,
        node: Any,
        state: State,
        whole: Any,
        standard_input: tuple[Piece, ...] | None = None,
        input_place: Place | None = None,
    ) -> Status:
        """Follow a simple command; ``whole`` is it with its redirections."""
        words: list[ShellWord] = []
        own: dict[str, Variable] = {}
        for child in node.named_children:
            if child.type == "variable_assignment" and not words:
                found = assigned(self, child, state)
                if found is not None:
                    own[found[0]] = found[1]
            elif child.type == "command_name":
                for inner in child.named_children:
                    words += expand_words(self, inner, state)
            elif "redirect" not in child.type and child.type != "comment":
                words += expand_words(self, child, state)
            if len(words) > 4096:
                break
        if not words:
            state.variables.update(own)
            return SUCCESS
        name = words[0].value
        if name is not None:
            if name in state.functions:
                return self._call(name, words[1:], state)
            if name == "read":
                given = next((child for child in node.named_children if child.type == "herestring_redirect"), None)
                value = given.named_children[-1] if given is not None and given.named_children else None
                text = text_of(expand(self, value, state)) if value is not None else None
                separators = own["IFS"].value if "IFS" in own else " \t\n"
                if text is not None and separators is not None:
                    return read_words(words[1:], text, separators, state, self.place(node))
            status = run_builtin(self, name, words[1:], state, self.place(node))
            if status is not None:
                return status
        self.record(words, own, state, self.place(whole), (standard_input, input_place))
        return RAN

    def record(
        self,
        words: Sequence[ShellWord],
        own: dict[str, Variable],
        state: State,
        place: Place,
        given: tuple[tuple[Piece, ...] | None, Place | None] = (None, None),
    ) -> None:
        """Take a command down."""
        if self.silent or len(self.commands) >= _MOST_COMMANDS:
            return
        environment = {name: variable for name, variable in state.variables.items() if variable.exported}
        environment.update(own)
        self.commands.append(
            ShellCommand(
                tuple(words),
                place,
                self._statement or place,
                environment,
                frozenset(own),
                dict(state.variables),
                state.cwd,
                state.cwd_known,
                dict(state.written),
                *given,
            )
        )

    def _call(self, name: str, arguments: Sequence[ShellWord], state: State) -> Status:
        body, source = state.functions[name]
        if self._depth + 3 > _DEEPEST:
            return UNSURE
        outside = (state.positional, state.arguments_given)
        complete = not any(word.many for word in arguments)
        state.positional, state.arguments_given = tuple(arguments if complete else ()), complete
        state.locals.append({})
        before = self._statement
        self._statement = None
        try:
            with self.within(source):
                status = self.statement(body, state)
        finally:
            self._statement = before
        for local, variable in state.locals.pop().items() if state.locals else ():
            if variable is None:
                state.variables.pop(local, None)
            else:
                state.variables[local] = variable
        state.positional, state.arguments_given = outside
        if state.leaving == "return":
            state.leaving = ""
        return status

    def source_script(self, path: Path, state: State) -> Status:
        """``source FILE``: follow it in this shell where it can be read."""
        try:
            source = SourceFile.read(path)
        except UserError:
            return SUCCESS
        if self._depth + 5 > _DEEPEST:
            return UNSURE
        self._depth += 5
        name, self.script_name = self.script_name, str(path)
        try:
            with self.within(source):
                tree = _parser().parse(source.data)
                self.statements(tree.root_node.children, state)
        finally:
            self._depth -= 5
            self.script_name = name
        if state.leaving == "return":
            state.leaving = ""
        return SUCCESS

    def parsed_part(self, start: int, end: int) -> Any:
        """A part of the source, parsed where it stands: the script inside ``bash -c '…'``."""
        import tree_sitter

        parser = tree_sitter.Parser(_parser().language)
        data = self.source.data

        def point(offset: int) -> tuple[int, int]:
            line = self.source.line_of(offset)
            return line - 1, offset - self.source.line_start(line)

        parser.included_ranges = [tree_sitter.Range(point(start), point(end), start, end)]
        return parser.parse(data).root_node

    def substituted(self, node: Any, state: State) -> Sequence[Piece] | None:
        """What ``$(…)`` prints, where it is one of the few commands whose output the files settle."""
        return substitution.output(self, node, state)

    def either(self, first: State, second: State, state: State, node: Any) -> None:
        """Go on from whichever of two states it is."""
        state.become(merge([first, second], self.place(node)))


_HOLDING_STATEMENTS = frozenset(
    {
        "program",
        "compound_statement",
        "do_group",
        "subshell",
        "if_statement",
        "elif_clause",
        "else_clause",
        "case_statement",
        "case_item",
        "for_statement",
        "c_style_for_statement",
        "while_statement",
        "function_definition",
        "ERROR",
    }
)


def read_shell(
    source: SourceFile,
    cwd: Path,
    *,
    cwd_known: bool = False,
    arguments: Sequence[ShellWord] | None = None,
    environment: dict[str, Variable] | None = None,
    given: dict[str, str] | None = None,
    part: tuple[int, int] | None = None,
) -> list[ShellCommand]:
    """The commands that a script runs, in order. ``arguments`` of None: it is read as it runs without any.

    ``part``: only these bytes of the source are the script.
    """
    shell = Shell(source, given)
    state = State(cwd)
    state.cwd_known = cwd_known
    state.variables = dict(environment or {})
    if arguments is not None:
        state.positional, state.arguments_given = tuple(arguments), True
    try:
        if part is None:
            shell.run(state)
        else:
            shell.statements(shell.parsed_part(*part).children, state)
    except RecursionError:
        return shell.commands
    return shell.commands


__all__ = ["FAILURE", "Shell", "ShellCommand", "read_shell"]
