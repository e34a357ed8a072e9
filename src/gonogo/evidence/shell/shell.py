"""A shell script, followed statement by statement without running anything."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.shell.builtins import read_words, run_builtin
from gonogo.evidence.shell.expansion import expand, expand_words
from gonogo.evidence.shell.parse import parse_script
from gonogo.evidence.shell.pieces import NOT_EVALUATED
from gonogo.evidence.shell.reading import Reading
from gonogo.evidence.shell.state import RAN, SUCCESS, UNSURE, ExitStatus, State, Variable, merge
from gonogo.evidence.shell.text import Piece, ShellWord, text_of, words_of
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Text
from gonogo.finding.errors import UserError

_SOURCED = Text("{path}, which it sources, was not read: {why}", "它 source 的 {path} 没有读取：{why}")
_MAX_STEPS = 20_000
_MAX_COMMANDS = 200
_MAX_DEPTH = 40
_NOT_FOLLOWED = ("activate", ".bashrc", ".bash_profile", ".profile", ".zshrc", "conda.sh")
_HOLDING_STATEMENTS = frozenset(
    {
        *("program", "compound_statement", "do_group", "subshell", "if_statement", "elif_clause", "else_clause"),
        *("case_statement", "case_item", "for_statement", "c_style_for_statement", "while_statement"),
        *("function_definition", "ERROR"),
    }
)


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


class Shell(Reading):
    """Follows a script and what it sources; lists, loops and their like are followed by ``follow_compound``."""

    def __init__(
        self,
        source: SourceFile,
        given: dict[str, str] | None,
        printed: Callable[[Reading, Any, State], Sequence[Piece] | None],
        follow_compound: Callable[[Shell, Any, State], ExitStatus],
    ) -> None:
        super().__init__(source, given, printed)
        self.commands: list[ShellCommand] = []
        self.steps = 0
        self.silent = 0
        """While above 0 commands are not taken down: a trial of a loop, a substitution."""
        self._follow_compound = follow_compound
        self._statement: Place | None = None
        self._depth = 0

    def run(self, state: State) -> None:
        """Follow the script from its start."""
        root = parse_script(self.source)
        if root is None:
            return
        self.statements(root.children, state)
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

    def statements(self, nodes: Sequence[Any], state: State) -> ExitStatus:
        """Follow statements in their order."""
        status = SUCCESS
        for node in nodes:
            if state.gone:
                break
            if node.is_named and node.type != "comment":
                status = self.statement(node, state)
        return status

    def statement(self, node: Any, state: State) -> ExitStatus:
        """Follow one statement."""
        self.steps += 1
        if self.steps > _MAX_STEPS or self._depth > _MAX_DEPTH or state.gone:
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

    def _follow(self, node: Any, state: State) -> ExitStatus:
        kind = node.type
        if kind == "command":
            return self.command(node, state, node)
        if kind in ("variable_assignment", "variable_assignments"):
            assignments = [node] if kind == "variable_assignment" else node.named_children
            for assignment in assignments:
                self.assign(assignment, state)
            return SUCCESS
        return self._follow_compound(self, node, state)

    def assign(self, node: Any, state: State, *, exported: bool = False) -> str | None:
        """``NAME=value``, ``NAME+=value``, ``NAME=(…)``, ``NAME[i]=value``. Answers the name."""
        found = _assigned(self, node, state)
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
    ) -> ExitStatus:
        """Follow a simple command; ``whole`` is it with its redirections."""
        words: list[ShellWord] = []
        own: dict[str, Variable] = {}
        for child in node.named_children:
            if child.type == "variable_assignment" and not words:
                if any(each.type == "ERROR" for each in child.children):
                    return UNSURE  # MODEL=<path (to fill in)>: what bash makes of such lines is no command
                found = _assigned(self, child, state)
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
            status = self._builtin(name, words[1:], state, self.place(node))
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
        if self.silent or len(self.commands) >= _MAX_COMMANDS:
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

    def _call(self, name: str, arguments: Sequence[ShellWord], state: State) -> ExitStatus:
        body, source = state.functions[name]
        if self._depth + 3 > _MAX_DEPTH:
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

    def _builtin(self, name: str, arguments: Sequence[ShellWord], state: State, place: Place) -> ExitStatus | None:
        """Do what a builtin does; None where ``name`` is none."""
        if name == "eval":
            return self.run_text(arguments, state, place)
        if name not in ("source", "."):
            return run_builtin(name, arguments, state, place)
        target = arguments[0].value if arguments else None
        if not target or os.path.basename(target) in _NOT_FOLLOWED or target.startswith(("/etc/", "/opt/", "/usr/")):
            return SUCCESS
        return self._source_script(Path(os.path.join(state.cwd, target)), state)

    def run_text(self, words: Sequence[ShellWord], state: State, place: Place) -> ExitStatus:
        """Follow the words of ``eval`` or ``bash -c`` as a script.

        A word that stands in the file as it is, is parsed where it stands; a text that variables make up is taken as
        one command whose words are separated by blanks.
        """
        if len(words) == 1:
            word = words[0]
            text = word.place.text
            if word.place.source is self.source and len(text) > 2 and text[0] == text[-1] and text[0] in "'\"":
                root = self.parsed_part(word.place.start + 1, word.place.end - 1)
                return self.statements(root.children, state) if root is not None else UNSURE
        split: list[ShellWord] = []
        for word in words:
            parts = [msgspec.structs.replace(piece, split=True) for piece in word.pieces]
            split += [_unquoted(made) for made in words_of(parts, word.place, quoted=False)]
        if not split or split[0].value is None:
            return UNSURE
        if split[0].value != "eval":
            status = self._builtin(split[0].value, split[1:], state, place)
            if status is not None:
                return status
        self.record(split, {}, state, place)
        return UNSURE

    def _source_script(self, path: Path, state: State) -> ExitStatus:
        """``source FILE``: follow it in this shell where it can be read."""
        try:
            source = SourceFile.read(path)
        except UserError:
            return SUCCESS
        if self._depth + 5 > _MAX_DEPTH:
            return UNSURE
        root = parse_script(source)
        if root is None:
            if source.gap is not None and self.source.gap is None:
                self.source.gap = _SOURCED.format(path=path, why=source.gap)
            return UNSURE
        self._depth += 5
        name, self.script_name = self.script_name, str(path)
        try:
            with self.within(source):
                self.statements(root.children, state)
        finally:
            self._depth -= 5
            self.script_name = name
        if state.leaving == "return":
            state.leaving = ""
        return SUCCESS

    def either(self, first: State, second: State, state: State, node: Any) -> None:
        """Go on from whichever of two states it is."""
        state.become(merge([first, second], self.place(node)))


def _assigned(shell: Shell, node: Any, state: State) -> tuple[str, Variable] | None:
    """What an assignment sets, and to what."""
    target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if target is None:
        return None
    appending = any(child.type == "+=" for child in node.children)
    place = shell.place(node)
    if target.type == "subscript":
        name_node = target.child_by_field_name("name")
        name = shell.text(name_node) if name_node is not None else ""
        piece = Piece(None, shell.source, node.start_byte, node.end_byte, many=True)
        return (name, Variable((), place, array=(ShellWord((piece,), place),))) if name else None
    name = shell.text(target)
    before = state.variables.get(name)
    if value is not None and value.type == "array":
        array = tuple(expand_words(shell, value, state))[:4096]
        if appending and before is not None and before.array is not None:
            array = (*before.array, *array)
        elif appending and before is not None and before.pieces:
            array = (ShellWord(before.pieces, before.place or place), *array)
        return name, Variable((), place, array=array)
    pieces = tuple(expand(shell, value, state)) if value is not None else ()
    if appending and before is not None and before.array is None:
        pieces = (*before.pieces, *pieces)
    return name, Variable(pieces[:4096], place)


def _expanded_later(pieces: Sequence[Piece], reason: Text) -> list[Piece]:
    """What the second reading expands can't be told."""
    return [
        msgspec.structs.replace(piece, text=None, reason=reason) if "$" in (piece.text or "") else piece
        for piece in pieces
    ]


def _unquoted(word: ShellWord) -> ShellWord:
    """A word without the quotes that the second reading takes off."""
    value = word.value
    if value is not None and "$" in value:
        reason = NOT_EVALUATED.format(text=value[:60])
        return msgspec.structs.replace(word, pieces=tuple(_expanded_later(word.pieces, reason)))
    if value is None or len(value) < 2 or value[0] != value[-1] or value[0] not in "'\"":
        return word
    place = word.place
    return ShellWord((Piece(value[1:-1], place.source, place.start, place.end),), place, True)
