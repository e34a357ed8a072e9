"""Finds the dataclasses that a program's HfArgumentParser parses, if all of them are visible."""

import ast
from functools import lru_cache

import msgspec

from gonogo.evidence.run import Run
from gonogo.evidence.script.python_file import PythonFile
from gonogo.evidence.script.script import Call, ClassInfo

_TRAINING_ARGUMENT_CLASSES = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
_OTHER_PARSER_MARKERS = (b"ArgumentParser(", b"sys.argv", b"import fire", b"import click", b"import typer", b"tyro")
"""If an entry script contains one of these, the modules that it imports may parse another program's arguments."""
_OTHERWISE = (
    *(b"return_remaining_strings", b"parse_known_args", b"add_argument"),
    *(b"sys.argv.", b"sys.argv =", b"sys.argv +="),
)
_PLAIN_BASES = ("object", "abc.ABC", "typing.Generic")


class ParsedArgumentClasses(msgspec.Struct, frozen=True):
    """The dataclasses that HfArgumentParser fills; ``training``: TrainingArguments is one of them."""

    call: Call
    own_fields: frozenset[str]
    training: bool
    seq2seq: bool


@lru_cache(maxsize=16)
def parsed_argument_classes(run: Run) -> ParsedArgumentClasses | None:
    """The dataclasses that the command line is parsed into; None if one is unknown or unknown options are allowed."""
    made = [call for script in run.scripts for call in script.calls("transformers.HfArgumentParser")]
    if not any(_is_fully_visible(call.script, run) for call in made):
        return None  # checked first: finding out which calls the launch reaches takes far longer
    calls = [call for call in made if run.reachable_code.is_reachable(call.script.source.path, call.place.line)]
    if len(calls) != 1 or not calls[0].node.args or not _is_fully_visible(calls[0].script, run):
        return None
    call = calls[0]
    script = call.script
    given = call.node.args[0]
    types = given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given]
    classes: dict[str, list[ClassInfo]] = {}
    for one in run.scripts:
        for info in one.classes:
            classes.setdefault(info.name, []).append(info)
    fields: set[str] = set()
    names: set[str] = set()
    for node in types:
        qualified = script.qualified(node)
        if qualified is None or not _collect_fields(qualified, classes, fields, names):
            return None
    training = bool(names)
    return (
        ParsedArgumentClasses(call, frozenset(fields), training, _TRAINING_ARGUMENT_CLASSES[1] in names)
        if training
        else None
    )


def _is_fully_visible(script: PythonFile, run: Run) -> bool:
    """Whether everything about a parser is visible in this script, and nothing else reads the command line."""
    data = script.source.data
    if script is not run.scripts[0] and any(word in run.scripts[0].source.data for word in _OTHER_PARSER_MARKERS):
        return False
    return b"parse_args_into_dataclasses" in data and not any(word in data for word in _OTHERWISE)


def _collect_fields(
    qualified: str,
    classes: dict[str, list[ClassInfo]],
    fields: set[str],
    names: set[str],
    seen: frozenset[str] = frozenset(),
) -> bool:
    """Add a class's fields and those of its bases; False if one of them is not visible."""
    if qualified in _TRAINING_ARGUMENT_CLASSES:
        names.add(qualified)
        return True
    if qualified in _PLAIN_BASES:
        return True
    if qualified in seen:  # a class named like its own base, which is a library's: its fields are not visible
        return False
    seen = seen | {qualified}
    found = classes.get(qualified.rpartition(".")[2], [])
    if len(found) != 1 or b"aliases" in found[0].script.source.data:
        return False
    info = found[0]
    fields.update(
        statement.target.id
        for statement in info.node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    )
    for base in info.node.bases:
        name = info.script.qualified(base)
        if name is None or not _collect_fields(name, classes, fields, names, seen):
            return False
    return True
