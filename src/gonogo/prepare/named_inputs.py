"""What a run's files name: models, datasets, folders of images, variables. Runs nothing and needs no torch."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gonogo.evidence.field import Field
from gonogo.evidence.prepared import BUILDERS
from gonogo.evidence.run import Run
from gonogo.evidence.script.identifiers import is_main_guard, last_name, split_identifier
from gonogo.evidence.script.script import Call, Script
from gonogo.evidence.shell.state import NOT_SET
from gonogo.prepare import settings_files
from gonogo.prepare.loaded_names import may_be_loaded
from gonogo.prepare.required_inputs import NamedInput, kind_of_option

_JOINED_PATHS_PATTERN = re.compile(r"\.{0,2}/[^:,]*(?:[:,]\.{0,2}/[^:,]*)+")
"""Several paths in one word, as in ``PATH``."""
_NUMBER_PATTERN = re.compile(r"\d*\.?\d+")
_HUB_NAME_PATTERN = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")
_FILE_SUFFIX_PATTERN = re.compile(r"\.(?:json|jsonl|csv|tsv|txt|parquet|arrow|tar|pt|bin|yaml|yml|py)$")
_MODEL_ARGUMENTS = ("model", "ref_model", "teacher_model", "reward_model", "reward_funcs")
TOKENIZER_ONLY = "tokenizer"
"""The ``option`` of a folder from which a call reads only the tokenizer."""
TOKENIZER_OPTIONS = ("hf_assets_path",)
"""Options that name such a folder: torchtitan trains from scratch, of its assets it needs the tokenizer alone."""
SHELL_VARIABLE_OPTION = "$"
"""The ``option`` of a variable that the launch script uses."""
_FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_WRITE_MODES = frozenset({"w", "a", "x", "wb", "ab", "xb", "w+"})
# Variables that a launcher or a scheduler sets.
_LAUNCHER_VARIABLE_PATTERN = re.compile(
    r"RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|ROLE_.*|MASTER_(ADDR|PORT)|NODE_RANK|NNODES|CUDA_.*|TORCHELASTIC_.*"
    r"|ACCELERATE_.*|SLURM_.*|OMPI_.*|PMI_.*|HOME|PATH|USER|PWD|TMPDIR|HOSTNAME|DS_.*|FSDP_.*|NCCL_.*|HF_.*|LOCAL_SIZE"
)


def is_hub_name(value: str) -> bool:
    """Whether a text looks like a Hub name rather than a path."""
    return bool(_HUB_NAME_PATTERN.match(value)) and not _FILE_SUFFIX_PATTERN.search(value)


def find_named_inputs(run: Run) -> Iterator[NamedInput]:
    """All inputs that a run's arguments and scripts name."""
    yield from _named_in_arguments(run)
    yield from settings_files.find_named_inputs(run)
    yield from _unset_shell_variables(run)
    for script in run.scripts:
        yield from _named_in_calls(run, script)
        yield from _environment_inputs(run, script)


def _named_in_arguments(run: Run) -> Iterator[NamedInput]:
    for name in run.arguments.names():
        field = run.arguments.get(name)
        kind = kind_of_option(name)
        if kind is None or (kind == "model" and not may_be_loaded(run, name)):
            continue
        if kind == "data" and (entries := _dataset_entries(field)):
            yield from (named for entry in entries for named in _named_in_entry(entry, _field_location(field), name))
            continue
        for value in _strings_in(field):
            if _is_usable_name(value):
                yield NamedInput(kind, value, _field_location(field), name)
        if not field.known and not field.absent and run.arguments.source_of(name) != "script":
            yield NamedInput(kind, None, _field_location(field), name)


def _dataset_entries(field: Field) -> list[dict[str, Any]]:
    """The mappings in a list of datasets, as in axolotl's ``datasets`` and TRL's mixtures; empty otherwise."""
    values = field.value if field.known and isinstance(field.value, (tuple, list)) else ()
    return [one for one in values if isinstance(one, dict) and isinstance(one.get("path", one.get("id")), str)]


def _named_in_entry(entry: dict[str, Any], place: str, option: str) -> Iterator[NamedInput]:
    """The dataset of an entry, once for each of its configs and data files."""
    path = entry.get("path", entry.get("id"))
    split = entry.get("split")
    files = entry.get("data_files") or ()
    names = [path] if path not in BUILDERS else [files] if isinstance(files, str) else list(files)
    for name in names:
        subsets = entry.get("name", entry.get("config"))
        for subset in subsets if isinstance(subsets, (list, tuple)) else (subsets,):
            yield NamedInput(
                "data", name, place, option,
                subset=subset if isinstance(subset, str) else None,
                split=split if isinstance(split, str) else None,
                entry=entry,
            )  # fmt: skip


def _strings_in(field: Field) -> Iterator[str]:
    """The strings in a value: of a list, of colon- or comma-separated paths, or the keys of a mapping."""
    values = field.value if isinstance(field.value, (tuple, list)) else (field.value,)
    for value in values if field.known else ():
        if isinstance(value, str):
            yield from re.split("[:,]", value) if _JOINED_PATHS_PATTERN.fullmatch(value) else (value.strip(),)
        elif isinstance(value, dict) and "class_path" not in value:  # an object that jsonargparse instantiates
            yield from (key for key in value if isinstance(key, str))


def _is_usable_name(value: str) -> bool:
    if not value or "\n" in value or value.lower() in ("none", "null", "true", "false", "auto", "default"):
        return False
    return not _NUMBER_PATTERN.fullmatch(value)  # the weight of a part of a blend: 0.3 first-prefix 0.7 second-prefix


def _field_location(field: Field) -> str:
    return f"{field.place.source.path}:{field.place.line}" if field.place is not None else ""


def _named_in_calls(run: Run, script: Script) -> Iterator[NamedInput]:
    for call in script.calls("*.from_pretrained", "*snapshot_download", "*SentenceTransformer"):
        if script is not run.scripts[0] and _is_under_main_guard(script, call.node):
            continue
        if not run.reachable_code.is_reachable(script.source.path, call.line):  # in a function that is never called
            continue
        node = argument_node(call, 0, "pretrained_model_name_or_path", "repo_id")
        if node is not None:
            alone = TOKENIZER_ONLY if "tokenizer" in split_identifier(last_name(call.receiver)) else ""
            yield NamedInput("model", _resolve_text(run, script, node), _call_location(script, call), alone)
    for call in script.calls("*Trainer"):
        for argument in _MODEL_ARGUMENTS:
            # TRL's trainers load a model that is passed as a string; a model object names none.
            node = argument_node(call, 0 if argument == "model" else -1, argument)
            if node is not None and run.reachable_code.is_reachable(script.source.path, call.line):
                names = _resolve_texts(run, script, node)
                yield from (
                    NamedInput("model", name, _call_location(script, call)) for name in names if name is not None
                )
    for call in script.calls("*load_dataset", "*load_from_disk"):
        node = argument_node(call, 0, "path", "dataset_path")
        if node is None:
            continue
        value = _resolve_text(run, script, node)
        if value in BUILDERS:
            for one in _resolve_texts(run, script, call.keyword_node("data_files")):
                yield NamedInput("data", one, _call_location(script, call))
            continue
        subset = _resolve_text(run, script, argument_node(call, 1, "name"))
        split = call.keyword("split").string
        yield NamedInput(
            "data",
            value,
            _call_location(script, call),
            is_hub=bool(value and is_hub_name(value)),
            subset=subset,
            split=split,
        )
    for call in script.calls("open", "*.memmap", "*.read_json", "*.read_csv", "*.read_parquet", "*.ImageFolder"):
        mode = call.argument(1).get("r")
        if call.name == "open" and (not isinstance(mode, str) or mode.strip("bt") in _WRITE_MODES):
            continue
        node = argument_node(call, 0)
        value = _resolve_text(run, script, node)
        if value and (call.name != "open" or re.search(r"\.(json|jsonl|csv|txt)$", value)):
            yield NamedInput("data", value, _call_location(script, call), _option_read_by(script, node))


def _resolve_texts(run: Run, script: Script, node: ast.expr | None) -> Iterator[str | None]:
    """The values of ``data_files`` or similar: one, several, or some for each split; None for an unknown one."""
    bound = script.bound_to(node) if node is not None else None
    if isinstance(bound, ast.Dict | ast.List | ast.Tuple):
        for one in bound.values if isinstance(bound, ast.Dict) else bound.elts:
            yield from _resolve_texts(run, script, one)
    else:
        yield _resolve_text(run, script, node)


def argument_node(call: Call, index: int, *keywords: str) -> ast.expr | None:
    """The argument at a position or with one of these keywords; None if the call has none."""
    node = call.node.args[index] if 0 <= index < len(call.node.args) else None
    for keyword in keywords:
        node = node or call.keyword_node(keyword)
    return node


def _option_read_by(script: Script, node: ast.expr | None) -> str:
    """The option from which an expression is read (``args.config``); empty if it isn't read from one."""
    bound = script.bound_to(node) if node is not None else None
    return bound.attr if isinstance(bound, ast.Attribute) else ""


def _resolve_text(run: Run, script: Script, node: ast.expr | None, depth: int = 0) -> str | None:
    """The string value of an expression: a literal, an option (``args.model``) or its default; None if unknown."""
    if node is None or depth > 4:
        return None
    field = script.field(node)
    if field.known:
        return field.value if isinstance(field.value, str) and type(field.value) is str else None
    if isinstance(node, ast.BoolOp):
        found = [_resolve_text(run, script, one, depth + 1) for one in node.values]
        return next((one for one in found if one is not None), None)
    bound = script.bound_to(node)
    if bound is not node:
        return _resolve_text(run, script, bound, depth + 1)
    if isinstance(node, ast.Attribute):
        return resolve_option(run, node.attr)
    return None


def resolve_option(run: Run, name: str) -> str | None:
    """The value of an option as text: the launch's, or else the script's default; None if unknown."""
    given = run.arguments.get(name)
    if given.known:
        return given.string
    if not given.absent:  # given but unknown: the default doesn't apply
        return None
    for script in run.scripts:
        for one in script.classes:
            default = one.default(name)
            if default.known:
                return default.string
        for call in script.calls("*.add_argument"):
            written = [call.argument(index).string or "" for index in range(len(call.node.args))]
            if name in {word.lstrip("-").replace("-", "_") for word in written}:
                default = call.keyword("default")
                return default.string if default.known else None
    return None


def _is_under_main_guard(script: Script, node: ast.AST) -> bool:
    """Whether a node runs only if the file is the main program: ``if __name__ == "__main__"``."""
    return any(isinstance(above, ast.If) and is_main_guard(above.test) for above in script.ancestors(node))


def _call_location(script: Script, call: Call) -> str:
    return f"{script.source.path}:{call.line}"


def _unset_shell_variables(run: Run) -> Iterator[NamedInput]:
    """Variables that the launch script uses but that are set neither in it nor in the environment."""
    for word in run.launch.words if run.launch is not None else ():
        written = word.place.source.data[word.place.start : word.place.end].decode("utf-8", "replace")
        for name in re.findall(r"\$\{?([A-Za-z_]\w*)", written):
            if word.reason == NOT_SET.format(name=name) and name not in os.environ:
                yield NamedInput("variable", name, f"{word.place.source.path}:{word.place.line}", SHELL_VARIABLE_OPTION)


def _environment_inputs(run: Run, script: Script) -> Iterator[NamedInput]:
    """``os.environ["NAME"]`` if neither the files nor a launcher set it."""
    if b"environ" not in script.source.data:
        return
    requested = [node.left for node in script.nodes(ast.Compare) if isinstance(node.left, ast.Constant)]
    guarded = {node.value for node in requested}
    written = {
        script.field(node.slice).string for node in script.nodes(ast.Subscript) if not isinstance(node.ctx, ast.Load)
    }
    for node in script.nodes(ast.Subscript):
        if not isinstance(node.ctx, ast.Load) or script.qualified(node.value) != "os.environ":
            continue
        if script is not run.scripts[0] and any(isinstance(above, _FUNCTION_NODES) for above in script.ancestors(node)):
            continue  # a function that the launch may never call
        name = script.field(node.slice).string
        if not name or name in written or name in guarded or _LAUNCHER_VARIABLE_PATTERN.fullmatch(name):
            continue
        if run.launch is None or run.launch.variable(name).absent:
            yield NamedInput("variable", name, f"{script.source.path}:{node.lineno}")


def to_absolute_path(value: str, folder: Path) -> str:
    """The absolute path that the launch would open."""
    return os.path.normpath(folder / os.path.expanduser(value))
