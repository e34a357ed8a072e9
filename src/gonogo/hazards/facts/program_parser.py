"""What a program's argparse accepts on its command line, where all of it is visible and it surely parses that line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from gonogo.evidence.run import Run
from gonogo.evidence.script.identifiers import last_name, same_code
from gonogo.evidence.script.python_file import PythonFile
from gonogo.evidence.script.script import Call, Script
from gonogo.hazards.facts.program_words import holds_for_argv

_HARMLESS_METHODS = frozenset(
    {
        *("add_argument", "add_argument_group", "add_mutually_exclusive_group", "parse_args", "print_help", "exit"),
        *("format_help", "print_usage", "format_usage", "set_defaults", "get_default", "error"),
    }
)
"""Methods of a parser that let it accept nothing more than what ``add_argument`` says."""
_HARMLESS_CALLEES = frozenset({"print", "isinstance", "type", "id", "repr", "str", "hasattr", "super"})
LINE_CHANGED_PATTERN = re.compile(
    rb"sys\.argv\s*(?:\[[^\]\n]*\]\s*)?(?:=(?!=)|\+=)|sys\.argv\.(?!index\b|count\b|copy\b)|del\s+sys\.argv"
    rb"|=\s*sys\.argv\s*$|from\s+sys\s+import[^\n]*argv",
    re.MULTILINE,
)
_FURTHER_PATTERN = re.compile(
    rb"\b(?:parse_known_args|parse_known_intermixed_args|add_subparsers|fromfile_prefix_chars|prefix_chars|REMAINDER"
    rb"|conflict_handler|_actions|_option_string_actions)\b"
)
"""What makes a parser accept more, or less, than its declarations say."""
_DEEPSPEED_OPTIONS = (*("--deepspeed", "--deepspeed_config", "--deepscale", "--deepscale_config", "--deepspeed_mpi"),)
_PARSERS = ("argparse.ArgumentParser", "deepspeed.add_config_arguments")
"""Calls that return a parser: DeepSpeed's returns the one that it is given."""
_MAX_CHAIN_LENGTH = 5
_REST_OF_LINE = ast.parse("sys.argv[1:]", mode="eval").body


class DeclaredOption(msgspec.Struct, frozen=True, eq=False):
    """One ``add_argument``: its option strings (none for a positional argument), and how many values it takes."""

    call: Call
    names: tuple[str, ...]
    takes: str
    """``one``, ``none`` (a flag), or ``?`` for anything else."""

    @property
    def is_unconditional(self) -> bool:
        """Whether it is declared in every run of the program: under no condition and in no loop."""
        return (
            not _conditions_around(self.call.script, self.call.node)
            and self.call.script.enclosing_loop(self.call.node) is None
        )


class ProgramParser(msgspec.Struct, frozen=True, eq=False):
    """All options that a program's parsers declare, and where they are parsed."""

    parse: Call
    declared: tuple[DeclaredOption, ...]
    more: frozenset[str]
    single: bool
    """Whether there is one parser, so that all of these options are its own."""

    @property
    def option_strings(self) -> frozenset[str]:
        """Every option string that a parser accepts as it is written."""
        return frozenset(name for one in self.declared for name in one.names) | self.more

    @property
    def has_positional(self) -> bool:
        """Whether an argument without a name is declared: a word that belongs to no option may be one."""
        return any(not one.names for one in self.declared)

    def declarations_of(self, word: str) -> tuple[DeclaredOption, ...]:
        """The declarations that an option as written may stand for, abbreviated or not."""
        exact = tuple(one for one in self.declared if word in one.names)
        if exact or not word.startswith("--"):
            return exact
        return tuple(one for one in self.declared if any(name.startswith(word) for name in one.names))

    def may_accept(self, word: str) -> bool:
        """Whether a parser may take the word for one of its options."""
        known = self.option_strings
        if word in known or word in ("-h", "--help"):
            return True
        if word.startswith("--"):
            return any(name.startswith(word) for name in known)
        return any(name[1:2] == word[1:2] for name in known if not name.startswith("--")) or any(
            name.startswith(f"-{word}") for name in known
        )


@lru_cache(maxsize=16)
def program_parser(run: Run) -> ProgramParser | None:
    """The argparse parser of the launched program; None if a part of it isn't visible or it may not be used."""
    if not run.scripts or run.launch is None:
        return None
    scripts = run.scripts
    parses = [
        call
        for one in scripts
        for call in one.calls("*.parse_args")
        if run.reachable_code.is_reachable(one.path, call.line)
    ]
    parses = [call for call in parses if _parses_command_line(call)]
    made = [call for one in scripts for call in one.calls("argparse.ArgumentParser")]
    if (
        not made
        or not parses
        or any(is_pattern_reachable(pattern, run) for pattern in (_FURTHER_PATTERN, LINE_CHANGED_PATTERN))
    ):
        return None
    own = {each.name for one in scripts for each in (*one.functions, *one.classes)}
    if any(next(one.subclasses("argparse.ArgumentParser"), None) is not None for one in scripts):
        return None
    parse = next(
        (call for call in parses if _is_made_in_project(call, own) and certainly_runs(call.script, call.node, run)),
        None,
    )
    if parse is None:
        return None
    more: set[str] = set()
    for script in scripts:
        if b"pars" in script.source.data and not _are_parsers_visible(script, own, more):
            return None
    declared = [_declared_option(call) for one in scripts for call in one.calls("*.add_argument")]
    visible = [one for one in declared if one is not None]
    if len(visible) != len(declared) or not visible:
        return None
    return ProgramParser(parse, tuple(visible), frozenset(more), len(made) == 1)


def is_pattern_reachable(pattern: re.Pattern[bytes], run: Run) -> bool:
    """Whether code that the launch can reach matches the pattern."""
    return any(
        run.reachable_code.is_reachable(one.path, one.source.line_of(found.start()))
        for one in run.scripts
        for found in pattern.finditer(one.source.data)
    )


def _parses_command_line(call: Call) -> bool:
    """Whether ``parse_args`` gets no arguments of its own: None, or the command line without the program."""
    given = call.node.args[0] if call.node.args else call.keyword_node("args")
    if given is None:
        return not any(keyword.arg is None for keyword in call.node.keywords)
    return (isinstance(given, ast.Constant) and given.value is None) or same_code(given, _REST_OF_LINE)


def _is_made_in_project(call: Call, own: set[str]) -> bool:
    """Whether the object whose ``parse_args`` is called is an ArgumentParser, or made by the project's own code."""
    kind = call.receiver_kind
    if kind is None:
        return isinstance(call.receiver, ast.Name | ast.Attribute | ast.Call) and not call.name.startswith(
            "argparse.Na"
        )
    return kind in _PARSERS or kind.rpartition(".")[2] in own


def _are_parsers_visible(script: Script, own: set[str], library_options: set[str]) -> bool:
    """Whether no parser is passed to unknown code; options of known libraries are added to ``library_options``."""
    for node in script.nodes(ast.Call):
        func = node.func
        name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        on_parser = isinstance(func, ast.Attribute) and _may_be_parser(script, func.value, own)
        if on_parser and name not in _HARMLESS_METHODS and name not in own:
            return False
        if name == "add_config_arguments":
            library_options.update(_DEEPSPEED_OPTIONS)
            continue
        if not any(
            _may_be_parser(script, one, own) for one in (*node.args, *(keyword.value for keyword in node.keywords))
        ):
            continue
        if name not in own and name not in _HARMLESS_CALLEES:
            return False
    return not any(keyword.arg == "parents" for keyword in _keywords_of_parsers(script))


def _keywords_of_parsers(script: Script) -> Iterator[ast.keyword]:
    for call in script.calls("argparse.ArgumentParser"):
        yield from call.node.keywords


def _may_be_parser(script: Script, node: ast.expr, own: set[str]) -> bool:
    """Whether a name may refer to an argument parser: by the call that made it, else by the name."""
    if isinstance(node, ast.Starred):
        node = node.value
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    kind = script.kind_of(node)
    if kind is not None and not kind.startswith("?") and kind.rpartition(".")[2] not in own:
        return kind in _PARSERS
    last = node.id if isinstance(node, ast.Name) else node.attr
    return last.lower().endswith("parser")


def _declared_option(call: Call) -> DeclaredOption | None:
    """The option that an ``add_argument`` call declares; None if its option strings aren't literals."""
    given = call.node.args
    names = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if len(names) != len(given) or call.has_unknown_kwargs:
        return None
    if not given:
        return None if call.keyword_node("dest") is None else DeclaredOption(call, (), "?")
    options = tuple(name for name in names if name.startswith("-"))
    action, nargs = call.keyword_node("action"), call.keyword_node("nargs")
    takes = "?"
    if action is None or _constant_value(action) in ("store", "append"):
        takes = "one" if nargs is None else "?"
    elif _constant_value(action) in ("store_true", "store_false", "store_const", "append_const", "count"):
        takes = "none"
    elif last_name(action) == "BooleanOptionalAction":
        takes = "none"
        options += tuple(f"--no-{name[2:]}" for name in options if name.startswith("--"))
    return DeclaredOption(call, options, takes)


def _constant_value(node: ast.expr | None) -> Any:
    return node.value if isinstance(node, ast.Constant) else None


def _conditions_around(script: PythonFile, node: ast.AST) -> tuple[ast.expr, ...]:
    """The conditions around a node, except ``if __name__ == "__main__"``."""
    return tuple(test for test in script.guarded_by(node) if not _is_main_guard(test))


def _is_main_guard(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and any(isinstance(one, ast.Name) and one.id == "__name__" for one in (test.left, *test.comparators))
        and isinstance(test.ops[0], ast.Eq)
    )


def certainly_runs(script: PythonFile, node: ast.AST, run: Run, depth: int = 0) -> bool:
    """Whether the program certainly reaches the node with this launch's arguments."""
    if not all(holds_for_argv(test, run) for test in _conditions_around(script, node)):
        return False
    if script.enclosing_loop(node) is not None or depth > _MAX_CHAIN_LENGTH:
        return False
    if any(isinstance(one, ast.Try | ast.ExceptHandler | ast.Lambda) for one in script.ancestors(node)):
        return False
    around = script.enclosing_function(node)
    if around is None:
        return script is run.scripts[0] or not any(_is_main_guard(test) for test in script.guarded_by(node))
    launch = run.launch
    if script is run.scripts[0] and launch is not None and launch.entry_function == around.name:
        return True
    return any(
        certainly_runs(other, call, run, depth + 1)
        for other in run.scripts
        for call in other.nodes(ast.Call)
        if _calls_function(other, call, around.name) and run.reachable_code.is_reachable(other.path, call.lineno)
        if script.enclosing_function(node) is not other.enclosing_function(call)
    )


def _calls_function(script: PythonFile, call: ast.Call, name: str) -> bool:
    """Whether a call is one of the function with that name, or passes the function to Fire, which calls it."""
    if _last_name_of(call.func) == name:
        return True
    given = call.args[0] if call.args else None
    return isinstance(given, ast.Name) and given.id == name and script.qualified(call.func) == "fire.Fire"


def _last_name_of(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
