"""The values used by the statement that failed: paths that don't exist, and objects created by gonogo.

An exception's message is worded by whoever raised it. The values passed to the call that failed are more reliable:
each name, attribute and constant of the statement, in the frame that failed and in those below it.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import PurePath
from types import FrameType
from typing import Any

import torch

from gonogo.virtual.frame_variables import local_variable
from gonogo.virtual.stack import OURS, is_standard_library, owner_of

_MAX_TEXT_LENGTH = 1024
_MAX_SOURCE_BYTES = 2 << 20
_MADE_BY_PREPARE = ("Tokenizer", "TokenizerFast", "Processor", "ImageProcessor", "FeatureExtractor", "Dataset")
_SUFFIX_PATTERN = re.compile(r"[^/.]\.[A-Za-z][A-Za-z0-9]{0,11}$")
_UNDEFINED = object()
_PROGRAM_ERRORS = (
    AttributeError, KeyError, IndexError, NameError, TypeError, ZeroDivisionError, AssertionError, ImportError,
)  # fmt: skip
"""Exceptions that Python raises for a value: a path that also occurs in the statement is not the reason."""


def failing_statements(error: BaseException) -> Iterator[tuple[FrameType, ast.stmt]]:
    """Statements of the innermost user frame and of those below it, outermost first, each with its frame."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    frames = [(frame, line) for frame, line in frames if not frame.f_code.co_filename.startswith((OURS, "<"))]
    first = next((n for n in reversed(range(len(frames))) if owner_of(frames[n][0].f_code.co_filename) == "user"), 0)
    for frame, line in frames[first:]:
        statement = _innermost_statement(frame.f_code.co_filename, line)
        if statement is not None:
            yield frame, statement


def missing_paths(error: BaseException) -> list[str]:
    """Complete paths that were passed to a reader that failed, and that don't exist."""
    if isinstance(error, _PROGRAM_ERRORS):
        return []
    found: dict[str, None] = {}
    for frame, statement in failing_statements(error):
        if isinstance(statement, ast.Raise) and owner_of(frame.f_code.co_filename) == "user":
            return []  # raised by user code, not by a reader: failed lookups have been recorded already
        for value in _evaluate_parts(frame, statement):
            path = _as_path(value)
            if path is not None and not os.path.lexists(path):
                found.setdefault(path)
    return list(found)


def generated_operands(error: BaseException, prepared: str) -> list[str]:
    """Names of gonogo's objects among the values of the failed statement: stand-ins, and data read from
    ``prepared``."""
    found: dict[str, None] = {}
    for frame, statement in failing_statements(error):
        if is_standard_library(frame.f_code.co_filename):
            continue
        for value in _evaluate_parts(frame, statement):
            if (name := _generated_name(value, prepared)) is not None:
                found.setdefault(name)
    return list(found)


def _generated_name(value: Any, prepared: str) -> str | None:
    kind = value if isinstance(value, type) else type(value)
    module = sys.modules.get(getattr(kind, "__module__", "") or "")
    if not isinstance(value, torch.Tensor) and _is_stand_in(module):
        return f"{kind.__module__}.{kind.__qualname__}"
    if not prepared or not kind.__name__.endswith(_MADE_BY_PREPARE):
        return None
    for name in ("name_or_path", "_data_files"):
        held = getattr(value, "__dict__", {}).get(name)
        files = [one.get("filename") for one in held if isinstance(one, dict)] if isinstance(held, list) else [held]
        if any(isinstance(one, str) and one.startswith(prepared.rstrip("/") + "/") for one in files):
            return kind.__name__
    return None


def _is_stand_in(module: Any) -> bool:
    """True for a module with which gonogo replaces a package that is not installed."""
    file = str(getattr(module, "__file__", None) or "")
    return file.startswith(os.path.join(OURS, "virtual", "stand_ins", ""))


def _as_path(value: Any) -> str | None:
    """The absolute path if the value looks like a path, else None."""
    text: object = os.fspath(value) if isinstance(value, PurePath) else value
    if not isinstance(text, str) or not 0 < len(text) <= _MAX_TEXT_LENGTH or "\n" in text or "://" in text:
        return None
    text = text.removeprefix("file:").partition("?")[0]
    rooted = text.startswith(("/", "./", "../", "~/"))
    if not rooted and (" " in text or _SUFFIX_PATTERN.search(text) is None):
        return None
    return os.path.abspath(os.path.expanduser(text))


def _innermost_statement(path: str, line: int) -> ast.stmt | None:
    """The innermost statement at a line, or None if that is a function or class definition."""
    tree = _parse_file(path)
    found: ast.stmt | None = None
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        if found is None or node.lineno >= found.lineno:
            found = node
    return None if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else found


def _parse_file(path: str) -> ast.Module | None:
    try:
        if os.path.getsize(path) > _MAX_SOURCE_BYTES:
            return None
        with open(path, "rb") as file:
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _evaluate_parts(frame: FrameType, statement: ast.stmt) -> Iterator[Any]:
    """The values of a statement's names, attributes, constants and strings, as far as reading them runs no code."""
    todo: list[ast.AST] = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.expr):
            value = _evaluate(node, frame)
            if value is not _UNDEFINED:
                yield value
        if not isinstance(node, (ast.stmt, ast.Lambda)):
            todo.extend(ast.iter_child_nodes(node))


def _evaluate(node: ast.expr, frame: FrameType) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return local_variable(frame, node.id, frame.f_globals.get(node.id, _UNDEFINED))
    if isinstance(node, ast.Attribute):
        owner = _evaluate(node.value, frame)
        return _UNDEFINED if owner is _UNDEFINED else _raw_attribute(owner, node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        owner = _evaluate(node.value, frame)
        if type(owner) in (dict, list, tuple):
            try:
                return owner[node.slice.value]
            except (LookupError, TypeError):
                return _UNDEFINED
    if isinstance(node, ast.JoinedStr):
        parts = [_evaluate(one.value if isinstance(one, ast.FormattedValue) else one, frame) for one in node.values]
        return (
            "".join(map(str, parts)) if all(isinstance(one, (str, int, os.PathLike)) for one in parts) else _UNDEFINED
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
        left, right = _evaluate(node.left, frame), _evaluate(node.right, frame)
        if isinstance(node.op, ast.Add):
            return left + right if type(left) is type(right) is str else _UNDEFINED
        paths = isinstance(left, os.PathLike) and isinstance(right, (str, os.PathLike))
        return os.path.join(left, right) if paths else _UNDEFINED
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join":
        parts = [_evaluate(one, frame) for one in node.args]
        are_paths = bool(parts) and all(isinstance(one, (str, os.PathLike)) for one in parts)
        if are_paths and _evaluate(node.func.value, frame) is os.path:
            return os.path.join(*parts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "Path") and node.args:
        return _evaluate(node.args[0], frame)
    return _UNDEFINED


def _raw_attribute(owner: Any, name: str) -> Any:
    """An attribute read from ``__dict__``, without running properties."""
    try:
        return vars(owner).get(name, _UNDEFINED)
    except TypeError:
        return _UNDEFINED
