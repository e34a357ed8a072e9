"""The fields of dataclasses that transformers' ``HfArgumentParser`` surely reads from a launch's words."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import msgspec

from gonogo.evidence.paths import may_exist
from gonogo.evidence.run import Run
from gonogo.evidence.script.identifiers import identifiers_in, last_name
from gonogo.evidence.script.python_file import PythonFile
from gonogo.evidence.script.script import Call
from gonogo.evidence.source_file import Place
from gonogo.hazards.facts.program_parser import LINE_CHANGED_PATTERN, certainly_runs, is_pattern_reachable

_PARSER = "transformers.HfArgumentParser"
_NO_OPTION = frozenset({"bool", "ClassVar", "InitVar"})
"""Annotations of fields that are no option, or one that may be left out."""


class RequiredField(msgspec.Struct, frozen=True):
    """A dataclass field without a default, which the command line has to give."""

    name: str
    place: Place


class RequiredDataclassFields(msgspec.Struct, frozen=True):
    """The required fields of the dataclasses that HfArgumentParser fills, as far as their code is the project's."""

    required: tuple[RequiredField, ...]


@lru_cache(maxsize=16)
def required_dataclass_fields(run: Run) -> RequiredDataclassFields | None:
    """The required fields of the program's dataclasses; None if they aren't parsed from this command line."""
    launch = run.launch
    if launch is None or not launch.options.complete or any(word.value is None for word in launch.options.words):
        return None
    program = run.scripts[0].source.path if run.scripts else ""
    if not program or may_exist(Path(program).with_suffix(".args")) or is_pattern_reachable(LINE_CHANGED_PATTERN, run):
        return None
    for script in run.scripts:
        for call in script.calls("*.parse_args_into_dataclasses"):
            if call.node.args or any(keyword.arg != "return_remaining_strings" for keyword in call.node.keywords):
                continue
            if call.receiver_kind == _PARSER and certainly_runs(script, call.node, run):
                return RequiredDataclassFields(tuple(_required_fields(script, call)))
    return None


def _required_fields(script: PythonFile, parse: Call) -> Iterator[RequiredField]:
    receiver = parse.receiver
    made = script.bound_to(receiver) if receiver is not None else None
    if not isinstance(made, ast.Call) or not made.args:
        return
    given = made.args[0]
    for one in given.elts if isinstance(given, ast.Tuple | ast.List) else [given]:
        yield from _required_fields_of_class(script, one, set())


def _required_fields_of_class(script: PythonFile, name: ast.expr, settled: set[str]) -> Iterator[RequiredField]:
    """The required fields of a class, then those of its bases for which it has no default."""
    found = script.names.class_of(name)
    if found is None:
        return
    resolver, node = found
    owner = script
    if resolver is not script.names and script.elsewhere is not None:
        owner = script.elsewhere.file_of(resolver) or script
    if not any(last_name(one) == "dataclass" for one in map(_callee, node.decorator_list)):
        return
    for each in node.body:
        if isinstance(each, ast.Assign):
            settled.update(target.id for target in each.targets if isinstance(target, ast.Name))
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name) or each.target.id in settled:
            continue
        settled.add(each.target.id)
        quoted = isinstance(each.annotation, ast.Constant)
        if _has_no_default(each.value) and not quoted and _NO_OPTION.isdisjoint(identifiers_in(each.annotation)):
            yield RequiredField(each.target.id, owner.place(each))
    for base in node.bases:
        yield from _required_fields_of_class(owner, base, settled)


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _has_no_default(value: ast.expr | None) -> bool:
    if value is None:
        return True
    if not isinstance(value, ast.Call) or last_name(value.func) != "field" or value.args:
        return False
    names = {keyword.arg for keyword in value.keywords}
    return not names & {None, "default", "default_factory", "init"}
