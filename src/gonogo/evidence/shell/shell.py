"""Evaluates a shell script statement by statement, without running anything."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.shell.absent import MissingTarget, find_missing_target, may_make_files
from gonogo.evidence.shell.builtins import read_words, run_builtin
from gonogo.evidence.shell.conditions import evaluate_test_words
from gonogo.evidence.shell.declarations import declare, evaluate_assignment, run_unset
from gonogo.evidence.shell.expansion import evaluate_arithmetic_text, expand_assignment_words, expand_unsplit
from gonogo.evidence.shell.lexer import Lexer, SimpleCommand, SyntaxWord
from gonogo.evidence.shell.parse import parse_script
from gonogo.evidence.shell.pieces import NOT_EVALUATED
from gonogo.evidence.shell.reading import MAX_STEPS, ShellReader
from gonogo.evidence.shell.state import ASSUMED_SUCCESS, FAILURE, SUCCESS, UNSURE, ExitStatus, State, Variable, merge
from gonogo.evidence.shell.text import Piece, ShellWord, split_into_words
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Text, UserError, translated

_SOURCED_UNREAD = translated("the script sources {path}, which was not read: {why}")
_NOT_FOLLOWED_AT = translated("the command at {path}:{line} was not followed: {why}")
_SOURCED_UNKNOWN = translated("gonogo can't determine which file `{text}` sources")
_SOURCED_NOT_HERE = translated("the script sources {path}, which does not exist here")
_UNKNOWN_COMMAND = translated("gonogo can't determine what `{text}` runs")
_NOT_PARSED = translated("the script's syntax can't be parsed")
_TOO_MANY_COMMANDS = translated(
    "the script was read only up to {path}:{line}, since it runs more than {limit} commands"
)
_COMPOUND_PATTERN = re.compile(rb"(?:[{(]|\[\[|(?:if|for|while|until|case|function)\b)")
_MAX_ABSENT = 100
_MAX_NOTES = 5
_MAX_WORDS = 4096
_SPECIAL_CHARACTERS_PATTERN = re.compile(r"[;&|<>(){}$`'\"\\*?\[#~\n]")
"""Characters that make a text more than plain words separated by blanks."""
_DECLARING = frozenset({"export", "declare", "typeset", "local", "readonly"})
_MAX_COMMANDS = 2000
_MAX_DEPTH = 40
_SKIPPED_SCRIPTS = ("activate", ".bashrc", ".bash_profile", ".profile", ".zshrc", "conda.sh")
_CONTAINER_STATEMENTS = frozenset(
    {
        *("program", "compound_statement", "do_group", "subshell", "if_statement", "elif_clause", "else_clause"),
        *("case_statement", "case_item", "for_statement", "c_style_for_statement", "while_statement"),
        *("function_definition", "ERROR"),
    }
)


_ERREXIT_STATEMENTS = frozenset({"command", "subshell", "pipeline", "test_command", "redirected_statement"})


class ShellCommand(msgspec.Struct, frozen=True):
    """A command that a script runs, after expansion."""

    words: tuple[ShellWord, ...]
    place: Place
    """The command with its redirections."""
    statement: Place
    """The whole statement that contains it, from its first word: a line can be inserted before it."""
    environment: dict[str, Variable]
    """The variables that it receives: exported ones, and those assigned before its name."""
    prefixed: frozenset[str]
    """Names of the variables that are set before its name."""
    shell: dict[str, Variable]
    """All variables of the shell."""
    cwd: Path
    cwd_known: bool
    written: dict[str, tuple[tuple[Piece, ...], Place]]
    """The files that the script has written before, for example from a heredoc."""
    standard_input: tuple[Piece, ...] | None = None
    input_place: Place | None = None
    cwd_assumed: Path | None = None
    """The folder in which the script must be started, if it changes into a folder that exists there."""
    notes: tuple[Text, ...] = ()
    """What could not be followed in the script before this command."""
    copied: dict[str, str] = {}
    """What the script has copied, moved or linked before: the new path, and the one that it is a copy of."""
    absent: tuple[MissingTarget, ...] = ()
    """What the script has changed into or sourced before, and is not here."""
    never: MissingTarget | None = None
    """What is not here, if the command is therefore never run."""
    made_before: bool = False
    """Whether programs have run before that may have made files."""


class Shell(ShellReader):
    """Evaluates a script and what it sources; ``follow_compound`` handles lists, loops and the like."""

    def __init__(
        self,
        source: SourceFile,
        initial_variables: dict[str, str] | None,
        get_command_output: Callable[[ShellReader, Any, State], Sequence[Piece] | None],
        follow_compound: Callable[[Shell, Any, State], ExitStatus],
    ) -> None:
        super().__init__(source, initial_variables, get_command_output)
        self._script = source
        self.commands: list[ShellCommand] = []
        self.silent = 0
        """While above 0 commands are not taken down: a trial of a loop, a substitution."""
        self._follow_compound = follow_compound
        self._statement: Place | None = None
        self._depth = 0
        self._reached = 0
        """Where the simple command ends that was followed last: the tree may end it earlier."""
        self.notes: list[Text] = []
        """What was not followed, with its line."""
        self.tested = 0
        """While above 0 a command's failure is asked for, and so ends nothing under ``set -e``."""
        self.absent: list[MissingTarget] = []
        """What the script changes into or sources, and is not here."""
        self.strict = False
        """Fail where that is sure, as bash does; else it is taken to be where the run is."""

    def run(self, state: State) -> None:
        """Evaluate the script from its start."""
        root = parse_script(self.source)
        if root is None:
            return
        self.statements(root.children, state)
        if not self.commands:
            for body, source in list(state.functions.values()):
                with self.switch_source(source):
                    self.statement(body, state.copy())
        self.at_exit(state)

    def at_exit(self, state: State) -> None:
        """Run the command of ``trap … EXIT`` when a shell ends."""
        words, state.on_exit = state.on_exit, ()
        for word in words:
            if word.value:
                state.ended, state.leaving = False, ""
                self.run_text([word], state, word.place)
                state.ended = True

    @contextmanager
    def switch_source(self, source: SourceFile) -> Iterator[None]:
        """Within the block, nodes are those of another file."""
        before, self.source = self.source, source
        try:
            yield
        finally:
            self.source = before
            self._reached = 0

    @contextmanager
    def without_recording(self) -> Iterator[None]:
        """Within the block, record no commands."""
        self.silent += 1
        try:
            yield
        finally:
            self.silent -= 1

    @contextmanager
    def as_condition(self) -> Iterator[None]:
        """Within the block, commands are part of a condition, so that failing ends nothing under ``set -e``."""
        self.tested += 1
        try:
            yield
        finally:
            self.tested -= 1

    def statements(self, nodes: Sequence[Any], state: State) -> ExitStatus:
        """Evaluate statements in order."""
        status = SUCCESS
        reached = 0
        for node in nodes:
            if state.has_ended:
                break
            if node.is_named and node.type != "comment" and node.start_byte >= reached:
                self._reached = 0
                source = self.source
                status = self.statement(node, state)
                reached = self._reached if self.source is source and self._reached > node.end_byte else 0
        return status

    def statement(self, node: Any, state: State) -> ExitStatus:
        """Evaluate one statement."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            self._stop_reading(self.place(node), MAX_STEPS)
            return UNSURE
        if self._depth > _MAX_DEPTH or state.has_ended:
            return UNSURE
        self._depth += 1
        outermost = self._statement is None or node.type in _CONTAINER_STATEMENTS
        before, self._statement = self._statement, (None if outermost else self._statement)
        if node.type not in _CONTAINER_STATEMENTS and self._statement is None:
            self._statement = self.place(node)
        try:
            status = self._run_node(node, state)
        finally:
            self._statement = before
            self._depth -= 1
        if (
            status.success is False
            and not status.assumed
            and not self.tested
            and "errexit" in state.options
            and node.type in _ERREXIT_STATEMENTS
        ):
            state.ended = True
        return status

    def _run_node(self, node: Any, state: State) -> ExitStatus:
        kind = node.type
        if kind == "command":
            return self.command(node, state, node)
        if kind in ("variable_assignment", "variable_assignments", "declaration_command", "unset_command"):
            return self.command(node, state, node)
        return self._follow_compound(self, node, state)

    def command(
        self,
        node: Any,
        state: State,
        redirected_node: Any,
        standard_input: tuple[Piece, ...] | None = None,
        input_place: Place | None = None,
    ) -> ExitStatus:
        """Evaluate a simple command; ``redirected_node`` is the node that includes its redirections."""
        if any(
            child.type == "variable_assignment" and _has_syntax_error(child) for child in (node, *node.named_children)
        ):
            return UNSURE  # a template's MODEL=<path (to fill in)>, which bash would misread as redirections
        at = node.start_byte
        while True:
            simple = Lexer(self.source.data, self.limit).parse_simple_command(at)
            status = self._run_simple_command(simple, state, node, redirected_node, (standard_input, input_place))
            self._reached = max(self._reached, simple.end_byte)
            # tree-sitter merges `N=1` and the following line into one command.
            following = Lexer(self.source.data, self.limit).skip_blanks(simple.end_byte, lines=True)
            if state.has_ended or following <= at or following >= node.end_byte or simple.words:
                return status
            at = following
            if _COMPOUND_PATTERN.match(self.source.data, at):
                root = self.parse_part(at, node.end_byte)
                if root is None or root.has_error:
                    self.note(Place(self.source, at, node.end_byte), _NOT_PARSED)
                    return UNSURE
                return self.statements(root.children, state)

    def _run_simple_command(
        self,
        simple: SimpleCommand,
        state: State,
        node: Any,
        redirected_node: Any,
        stdin: tuple[tuple[Piece, ...] | None, Place | None],
    ) -> ExitStatus:
        words: list[ShellWord] = []
        for word in simple.words:
            words += expand_assignment_words(self, word, state)
            if len(words) > _MAX_WORDS:
                break
        if not words:
            for assignment in simple.assignments:
                name, variable = evaluate_assignment(self, assignment, state)
                state.set(name, variable)
            return self.expansion_failure(state) or SUCCESS
        own = dict(evaluate_assignment(self, assignment, state) for assignment in simple.assignments)
        if failed := self.expansion_failure(state):
            return failed
        status = self._run_function_or_builtin(simple, words, own, state, node, stdin[0])
        if status is not None:
            return status
        first = simple.assignments[0] if simple.assignments else simple.words[0]
        start = redirected_node.start_byte if first.start_byte == node.start_byte else first.start_byte
        self.record(words, own, state, Place(self.source, start, max(simple.end_byte, redirected_node.end_byte)), stdin)
        return ASSUMED_SUCCESS

    def expansion_failure(self, state: State) -> ExitStatus | None:
        """The failure if an expansion has ended the shell, else None."""
        if not state.failing:
            return None
        state.failing, state.ended = False, True
        return FAILURE

    def _run_function_or_builtin(
        self,
        simple: SimpleCommand,
        words: Sequence[ShellWord],
        prefix_assignments: dict[str, Variable],
        state: State,
        node: Any,
        standard_input: tuple[Piece, ...] | None,
    ) -> ExitStatus | None:
        """Call a function or evaluate a builtin; None if the command starts a program."""
        name = words[0].value
        if name is None:
            return None
        if name in state.functions:
            return self._with_temporary_variables(
                prefix_assignments, state, lambda: self._call_function(name, words[1:], state)
            )
        if name in _DECLARING:
            return declare(self, simple, words, state)
        if name == "unset":
            return run_unset(words[1:], state)
        absent = find_missing_target(self, words, state, node)
        if absent is not None:
            if len(self.absent) < _MAX_ABSENT and absent not in self.absent:
                self.absent.append(absent)
            if self.strict and absent.sure:
                state.ended = state.ended or (self.posix and name == ".")
                return FAILURE
        lexed = [word for word in simple.words[1:] if isinstance(word, SyntaxWord)]
        if name in ("test", "[") and len(lexed) == len(simple.words) - 1:
            return evaluate_test_words(self, lexed[:-1] if name == "[" else lexed, state)
        if name == "let":
            numbers = [evaluate_arithmetic_text(self, word.value or "?", node, state) for word in words[1:]]
            return UNSURE if not numbers or numbers[-1] is None else ExitStatus(numbers[-1] != 0)
        if name == "read":
            given = next((each.target for each in simple.redirects if each.operator == "<<<"), None)
            pieces = expand_unsplit(self, given, state) if given is not None else standard_input
            separators = prefix_assignments["IFS"].value if "IFS" in prefix_assignments else state.separators
            if pieces is not None and separators is not None:
                status = read_words(words[1:], pieces, separators, state, self.place(node))
                if status is not None:
                    return status
        return self._run_builtin(name, words[1:], state, self.place(node))

    def _with_temporary_variables(
        self, prefix_assignments: dict[str, Variable], state: State, call: Callable[[], ExitStatus]
    ) -> ExitStatus:
        """Within the call of a function, set the variables assigned before its name."""
        before = {name: state.variables.get(name) for name in prefix_assignments}
        for name, variable in prefix_assignments.items():
            state.variables[name] = msgspec.structs.replace(variable, exported=True)
        status = call()
        for name, variable_before in before.items():
            if variable_before is None:
                state.variables.pop(name, None)
            else:
                state.variables[name] = variable_before
        return status

    def note(self, place: Place, reason: Text) -> None:
        """Record something that gonogo can't follow, for the report."""
        line = _NOT_FOLLOWED_AT.format(path=place.source.path, line=place.line, why=reason)
        if line not in self.notes and len(self.notes) < _MAX_NOTES:
            self.notes.append(line)

    def _stop_reading(self, place: Place, limit: int) -> None:
        if self._script.gap is None:
            self._script.gap = _TOO_MANY_COMMANDS.format(path=place.source.path, line=place.line, limit=limit)

    def record(
        self,
        words: Sequence[ShellWord],
        prefix_assignments: dict[str, Variable],
        state: State,
        place: Place,
        stdin: tuple[tuple[Piece, ...] | None, Place | None] = (None, None),
    ) -> None:
        """Record a command."""
        made_before, self.made_before = self.made_before, self.made_before or may_make_files(words)
        if self.silent:
            return
        if len(self.commands) >= _MAX_COMMANDS:
            self._stop_reading(place, _MAX_COMMANDS)
            return
        environment = {name: variable for name, variable in state.variables.items() if variable.exported}
        environment.update(prefix_assignments)
        self.commands.append(
            ShellCommand(
                tuple(words),
                place,
                self._statement or place,
                environment,
                frozenset(prefix_assignments),
                dict(state.variables),
                state.cwd,
                state.cwd_known,
                dict(state.written),
                *stdin,
                cwd_assumed=state.cwd_assumed,
                notes=tuple(self.notes),
                copied=dict(state.copied),
                absent=tuple(self.absent),
                made_before=made_before or bool(state.made or state.written or state.copied),
            )
        )

    def _call_function(self, name: str, arguments: Sequence[ShellWord], state: State) -> ExitStatus:
        body, source = state.functions[name]
        if self._depth + 3 > _MAX_DEPTH:
            return UNSURE
        outside = (state.positional, state.arguments_given)
        complete = not any(word.may_split for word in arguments)
        state.positional, state.arguments_given = tuple(arguments if complete else ()), complete
        state.locals.append({})
        before = self._statement
        self._statement = None
        try:
            with self.switch_source(source):
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

    def _run_builtin(self, name: str, arguments: Sequence[ShellWord], state: State, place: Place) -> ExitStatus | None:
        """Evaluate a builtin; None if ``name`` isn't one."""
        if name == "eval":
            return self.run_text(arguments, state, place)
        if name not in ("source", "."):
            status = run_builtin(name, arguments, state, place)
            if status is not None and may_make_files((ShellWord((), place), *arguments), name):
                self.made_before = True
            return status
        target = arguments[0].value if arguments else None
        handed = tuple(arguments[1:])
        if arguments and target is None:
            self.note(place, _SOURCED_UNKNOWN.format(text=arguments[0].place.text[:60]))
        if not target or os.path.basename(target) in _SKIPPED_SCRIPTS or target.startswith(("/etc/", "/opt/", "/usr/")):
            return SUCCESS
        return self._source_script(Path(os.path.join(state.cwd, os.path.expanduser(target))), state, handed, place)

    def run_text(self, words: Sequence[ShellWord], state: State, place: Place) -> ExitStatus:
        """Evaluate the words of ``eval`` or ``bash -c`` as a script.

        A word written literally in the file is parsed in place; a text built from variables, without shell syntax, is
        taken as one command whose words are separated by blanks.
        """
        if len(words) == 1:
            word = words[0]
            text = word.place.text
            if word.place.source is self.source and len(text) > 2 and text[0] == text[-1] and text[0] in "'\"":
                inside = text[1:-1]
                if text[0] == "'" or not any(sign in inside for sign in "\\$`"):
                    root = self.parse_part(word.place.start + 1, word.place.end - 1)
                    with self.limit_reading(word.place.end - 1):
                        return self.statements(root.children, state) if root is not None else UNSURE
        joined = " ".join(word.value if word.value is not None else "\0" for word in words)
        if "\0" not in joined and _SPECIAL_CHARACTERS_PATTERN.search(joined):
            return self._run_generated_text(joined, words[0].place, state)
        split: list[ShellWord] = []
        for word in words:
            parts = [msgspec.structs.replace(piece, split=True, quoted=False) for piece in word.pieces]
            split += [_unquote(made) for made in split_into_words(parts, word.place)]
        if not split or split[0].value is None:
            self.note(place, _UNKNOWN_COMMAND.format(text=" ".join(word.place.text for word in words)[:60]))
            return UNSURE
        if split[0].value != "eval":
            if split[0].value in state.functions:
                return self._call_function(split[0].value, split[1:], state)
            status = self._run_builtin(split[0].value, split[1:], state, place)
            if status is not None:
                return status
        self.record(split, {}, state, place)
        return UNSURE

    def _run_generated_text(self, text: str, place: Place, state: State) -> ExitStatus:
        """Evaluate a text that the script has built; its places are those of the line that runs it."""
        lines = place.source.line_of(place.start) - 1
        source = SourceFile.from_text(place.source.path, "\n" * lines + text + "\n")
        root = parse_script(source) if self._depth + 3 < _MAX_DEPTH else None
        if root is None:
            return UNSURE
        self._depth += 2
        try:
            with self.switch_source(source):
                return self.statements(root.children, state)
        finally:
            self._depth -= 2

    def _source_script(self, path: Path, state: State, arguments: tuple[ShellWord, ...], place: Place) -> ExitStatus:
        """``source FILE ARGUMENTS``: evaluate the file in this shell, if it can be read."""
        try:
            source = SourceFile.read(path)
        except UserError:
            self.note(place, _SOURCED_NOT_HERE.format(path=path))
            return SUCCESS
        if self._depth + 5 > _MAX_DEPTH:
            return UNSURE
        root = parse_script(source)
        if root is None:
            if source.gap is not None and self.source.gap is None:
                self.source.gap = _SOURCED_UNREAD.format(path=path, why=source.gap)
            return UNSURE
        self._depth += 5
        outside = (state.positional, state.arguments_given)
        if arguments:
            complete = not any(word.may_split for word in arguments)
            state.positional, state.arguments_given = arguments if complete else (), complete
        name, self.sourced = self.sourced, str(path)
        try:
            with self.switch_source(source):
                self.statements(root.children, state)
        finally:
            self._depth -= 5
            self.sourced = name
            if arguments:
                state.positional, state.arguments_given = outside
        if state.leaving == "return":
            state.leaving = ""
        return SUCCESS

    def merge_states(self, first: State, second: State, state: State, node: Any) -> None:
        """Continue with the merge of two possible states."""
        state.replace_with(merge([first, second], self.place(node)))


def _has_syntax_error(assignment: Any) -> bool:
    """Whether tree-sitter could not parse an assignment."""
    return any(each.type == "ERROR" for each in assignment.children)


def _mark_unexpanded(pieces: Sequence[Piece], reason: Text) -> list[Piece]:
    """Mark as unknown what ``eval`` would expand a second time."""
    return [
        msgspec.structs.replace(piece, text=None, reason=reason) if "$" in (piece.text or "") else piece
        for piece in pieces
    ]


def _unquote(word: ShellWord) -> ShellWord:
    """A word without the quotes that ``eval`` removes."""
    value = word.value
    if value is not None and "$" in value:
        reason = NOT_EVALUATED.format(text=value[:60])
        return msgspec.structs.replace(word, pieces=tuple(_mark_unexpanded(word.pieces, reason)))
    if value is None or len(value) < 2 or value[0] != value[-1] or value[0] not in "'\"":
        return word
    place = word.place
    return ShellWord((Piece(value[1:-1], place.source, place.start, place.end),), place, True)
