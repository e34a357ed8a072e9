"""The columns that scripts read from rows, and the separator between columns in a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Script
from gonogo.evidence.training_arguments import Arguments
from gonogo.prepare.generated.rows import TEMPLATE, guess_column_kind, to_choice_kind
from gonogo.prepare.named_inputs import argument_node

_COLUMN_OPTION_PATTERN = re.compile(
    r"(?:.*[._])?(text|messages|conversations|prompt|completion|response|question|answer|input|output|chosen|rejected"
    r"|label|image|images|img|video|videos|audio|caption)_(?:key|column|field|column_name)$"
)
_SEPARATOR_OPTION_PATTERN = re.compile(r"-*(?:\w+[-_])?(?:separator|sep|delimiter)")
_READERS = ("*.read_csv", "csv.reader", "csv.DictReader")


def columns_read_in(scripts: Sequence[Script]) -> tuple[str, ...]:
    """The keys that scripts read from rows, most frequent first: ``row["text"]``, ``row.get("text")``."""
    counted: dict[str, int] = {}
    for script in scripts:
        found = [script.field(node.slice).string for node in script.nodes(ast.Subscript)
                 if isinstance(node.slice, ast.Constant) and isinstance(node.ctx, ast.Load)]  # fmt: skip
        found += [call.argument(0).string for call in script.calls("*.get", "*.pop") if call.node.args]
        for node in script.nodes(ast.Constant):
            if isinstance(node.value, str) and "{" in node.value:  # "### Instruction:\n{instruction}"
                found += re.findall(r"\{(\w+)\}", node.value)
        found += [
            node.left.value
            for node in script.nodes(ast.Compare)
            if isinstance(node.left, ast.Constant)
            and isinstance(node.ops[0], ast.In)
            and isinstance(node.left.value, str)
        ]
        for name in found:
            if name and name.isidentifier():
                counted[name] = counted.get(name, 0) + 1
    return tuple(sorted(counted, key=lambda name: (-counted[name], name)))


def tokenized_columns(scripts: Sequence[Script]) -> tuple[str, ...]:
    """The columns that scripts pass to a tokenizer directly: ``tokenizer(rows["sentence"])``."""
    found: dict[str, None] = {}
    for script in scripts:
        for call in script.calls("tokenizer", "*.tokenizer"):
            node = argument_node(call, 0, "text")
            bound = script.bound_to(node) if node is not None else None
            if isinstance(bound, ast.Subscript) and (name := script.field(bound.slice).string):
                found[name] = None
    return tuple(found)


def iterated_columns(scripts: Sequence[Script]) -> frozenset[str]:
    """The columns with a plural name over whose value scripts iterate: ``for s in row["steps"]``.

    Their names alone would make them texts, but iterating over a text would yield single characters.
    """
    found: set[str] = set()
    for script in scripts:
        loops = script.nodes(ast.For, ast.comprehension)
        for value in [node.iter for node in loops if isinstance(node, ast.For | ast.comprehension)]:
            if isinstance(value, ast.Call) and value.args and getattr(value.func, "id", "") == "enumerate":
                value = value.args[0]
            if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):  # row["steps"][:3]
                value = value.value
            name = script.field(value.slice).string if isinstance(value, ast.Subscript) else None
            if name and name.endswith("s") and guess_column_kind(name) == "text":
                found.add(name)
    return frozenset(found)


def dict_key_columns(scripts: Sequence[Script]) -> dict[str, str]:
    """The columns whose value is the key of a dict, with the dict's keys as their kind: ``TEMPLATES[row["task"]]``.

    A text that isn't among the keys would be a KeyError.
    """
    found: dict[str, str] = {}
    for script in scripts:
        for node in script.nodes(ast.Subscript):
            key = script.bound_to(node.slice) if isinstance(node.ctx, ast.Load) else None
            name = script.field(key.slice).string if isinstance(key, ast.Subscript) else None
            entries = script.bound_to(node.value) if name else None
            if name and isinstance(entries, ast.Dict):
                keys = [one.value for one in entries.keys if isinstance(one, ast.Constant)]
                if keys and len(keys) == len(entries.keys) and all(isinstance(one, str) for one in keys):
                    found.setdefault(name, to_choice_kind([str(one) for one in keys]))
    return found


def add_column_kinds(names: Sequence[str], scripts: Sequence[Script]) -> list[str]:
    """The columns, as ``name:kind`` where the scripts show what kind of value they hold."""
    kinds = {**dict.fromkeys(iterated_columns(scripts), "texts"), **dict_key_columns(scripts)} if names else {}
    return [f"{name}:{kinds[name]}" if name in kinds else name for name in names]


def columns_in_options(arguments: Arguments) -> tuple[str, ...]:
    """The columns that options name, each as ``name:kind``: ``--text_column body``, ``data.messages_key=messages``."""
    in_template = arguments.get(TEMPLATE).truth
    found: dict[str, str] = {}
    for name in arguments.names():
        match = _COLUMN_OPTION_PATTERN.match(name.lower())
        column = arguments.get(name).string
        if match is None or not column or arguments.source_of(name) == "script":
            continue
        is_chat = match[1] in ("chosen", "rejected") and in_template
        found[column] = "chat" if is_chat or match[1] == "conversations" else guess_column_kind(match[1])
    return tuple(f"{column}:{kind}" for column, kind in found.items())


def csv_separator(run: Run) -> str:
    """The launch's separator option, its default, or the only separator that readers get; empty if unknown."""
    for name in run.arguments.names():
        value = run.arguments.get(name).string if _SEPARATOR_OPTION_PATTERN.fullmatch(name.lower()) else None
        if value is not None and (delimiter := _delimiter_character(value)):
            return delimiter
    defaults: set[str] = set()
    read: set[str | None] = set()
    for script in run.scripts:
        for call in script.calls("*.add_argument"):
            option = call.argument(0).string
            if option is not None and _SEPARATOR_OPTION_PATTERN.fullmatch(option.lower()):
                defaults.add(_delimiter_character(call.keyword("default").string or ""))
        for call in script.calls(*_READERS):
            given = next((one for one in (call.keyword("sep"), call.keyword("delimiter")) if not one.absent), None)
            read.add("," if given is None else given.string)
    only = [next(iter(found)) for found in (defaults, read) if len(found) == 1]
    return next((_delimiter_character(delimiter) for delimiter in only if delimiter), "")


def _delimiter_character(text: str) -> str:
    """The character that a text stands for (``tab``, ``comma``, itself); empty if it isn't one."""
    text = {"\\t": "\t", "tab": "\t", "comma": ","}.get(text.lower(), text)
    return text if len(text) == 1 else ""


_MAX_ROWS = 4096
_MAX_TOKENS = 2_000_000
"""The most tokens to generate for two steps; a program that needs more reports itself that there is too little."""
_BATCH_SIZE_OPTIONS = (
    "batch_size",
    "train_batch_size",
    "global_batch_size",
    "per_device_train_batch_size",
    "per_gpu_batch_size",
)
_GRADIENT_ACCUMULATION_OPTIONS = (
    "gradient_accumulation_steps",
    "accum_freq",
    "accumulation_steps",
    "grad_accum_steps",
    "accum_iter",
)


def rows_for_two_steps(run: Run, tokens: int = 0) -> int:
    """Rows for two steps of all ranks at ``tokens`` each; 0 if no batch size is stated or they would be too many."""
    batch, accumulated = (
        _integer_setting(run, _BATCH_SIZE_OPTIONS),
        _integer_setting(run, _GRADIENT_ACCUMULATION_OPTIONS) or 1,
    )
    rows = min(2 * batch * accumulated * (run.world_size or 8), _MAX_ROWS)
    return rows if rows * tokens <= _MAX_TOKENS else 0


_SELECTING_CALLS = ("*.select", "*.take", "*.skip", "*.train_test_split")
_MAX_SELECTED_TOKENS = 24_000_000


def selected_row_count(run: Run, name: str, tokens: int = 0) -> int:
    """The fixed number of rows that scripts select from a dataset; 0 if too many at ``tokens`` each.

    ``select(range(500))``, ``take(500)``, ``train_test_split(test_size=500)``: held out of fewer rows, they would
    leave none.
    """
    taken = [0]
    for script in run.scripts:
        for call in script.calls(*_SELECTING_CALLS):
            opened = {one.value for one in ast.walk(call.node.func) if isinstance(one, ast.Constant)}
            if name not in opened and any(isinstance(one, str) and "/" in one for one in opened):
                continue  # of another data set, which is opened in the same expression
            of_split = call.name.endswith("split")
            given = call.keyword("test_size") if of_split else call.argument(0)
            passed = [one.value for one in call.node.keywords if one.arg == "test_size"] if of_split else call.node.args
            node = next(iter(passed), None)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
                taken += [end.value for end in map(script.field, node.args[:2]) if isinstance(end.value, int)]
            elif call.name.endswith("select"):
                continue
            elif isinstance(given.value, int):
                taken.append(given.value)
            elif isinstance(node, ast.Attribute):  # take(args.size_valid_set)
                taken.append(_integer_setting(run, (node.attr,)))
    rows = max(taken)
    return rows if rows * tokens <= _MAX_SELECTED_TOKENS else 0


def _integer_setting(run: Run, names: tuple[str, ...]) -> int:
    stated = next((run.arguments.get(name) for name in names if run.arguments.get(name).known), None)
    text = str(stated.value) if stated is not None else ""
    return int(text) if text.isdecimal() else 0
