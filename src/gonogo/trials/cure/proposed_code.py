"""Checks that a proposed change of Python code does nothing but change settings of existing calls.

A proposal may come from a model that read a hostile log. It may leave things out, and change numbers, booleans, plain
words and arguments; it may not call anything that the file doesn't already call, import anything, or use new names.
"""

from __future__ import annotations

import ast
import re
from collections import Counter

from gonogo.finding import Text, translated

_PLAIN_WORD_PATTERN = re.compile(r"[A-Za-z0-9][\w.+-]{0,60}|")
_CODE_EXECUTION_NAMES = frozenset({
    "os", "subprocess", "sys", "shutil", "importlib", "runpy", "ctypes", "pty", "socket", "eval", "exec", "compile",
    "open", "__import__", "getattr", "setattr", "delattr", "globals", "locals", "vars", "pickle", "marshal", "code",
    "builtins", "system", "popen", "spawn", "sh", "pexpect", "paramiko", "requests", "urllib", "http", "load", "loads",
})  # fmt: skip
"""Names whose calls must stay exactly as they are."""

_INVALID_PYTHON = translated("with the change, the file is not valid Python")
_NEW_CALL = translated("the change adds a call: {name}")
_HAS_IMPORT = translated("the change adds an import")
_NEW_NAME = translated("the change uses a new name: {name}")
_NOT_A_PLAIN_SETTING = translated("the change adds a string that is not a plain setting: {name}")
_CHANGES_CALL_ARGUMENTS = translated("the change alters the arguments of {name}")


def rejection_reason(before: str, after: str) -> Text | None:
    """Why a change from one text of a file to another is rejected; None if it only changes settings."""
    try:
        old, new = ast.parse(before), ast.parse(after)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _INVALID_PYTHON
    if _count_imports(new) - _count_imports(old):
        return _HAS_IMPORT
    more = _count_calls(new) - _count_calls(old)
    if more:
        return _NEW_CALL.format(name=next(iter(more))[:60])
    names = _used_names(new) - _used_names(old)
    if names:
        return _NEW_NAME.format(name=min(names)[:60])
    texts = _string_constants(new) - _string_constants(old)
    strange = next((text for text in texts if not _PLAIN_WORD_PATTERN.fullmatch(text)), None)
    if strange is not None:
        return _NOT_A_PLAIN_SETTING.format(name=repr(strange)[:60])
    given, was_given = _code_execution_calls(new), _code_execution_calls(old)
    changed = next((name for name, given_now in given if (name, given_now) not in was_given), None)
    return _CHANGES_CALL_ARGUMENTS.format(name=changed[:60]) if changed is not None else None


def _dotted_name(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "()")
    return ".".join(reversed(parts))


def _count_calls(tree: ast.Module) -> Counter[str]:
    called = [_dotted_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for node in ast.walk(tree):  # decorators are called too
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            called += [f"@{_dotted_name(one)}" for one in node.decorator_list]
    return Counter(called)


def _count_imports(tree: ast.Module) -> Counter[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None) or ""
            found += [f"{module}:{alias.name}:{alias.asname}" for alias in node.names]
    return Counter(found)


def _used_names(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(f".{node.attr}")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
    return found


def _string_constants(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            found.add(node.value if isinstance(node.value, str) else node.value.decode("latin-1"))
    return found


def _code_execution_calls(tree: ast.Module) -> list[tuple[str, str]]:
    """The calls that execute or open things, each with all its arguments but plain switches (``exist_ok=True``)."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _dotted_name(node.func)
            if not _CODE_EXECUTION_NAMES.isdisjoint(name.split(".")):
                kept = [keyword for keyword in node.keywords if not _is_literal_setting(keyword)]
                found.append((name, ast.dump(ast.Call(func=node.func, args=node.args, keywords=kept))))
    return found


def _is_literal_setting(keyword: ast.keyword) -> bool:
    value = keyword.value
    plain = isinstance(value, ast.Constant) and isinstance(value.value, (bool, int, float, type(None)))
    return plain and keyword.arg not in (None, "shell")
