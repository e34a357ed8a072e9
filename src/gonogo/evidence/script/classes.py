"""The classes of a script: their bases, methods, and default values of fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from gonogo.evidence.field import Field
from gonogo.evidence.script.python_file import PythonFile
from gonogo.evidence.script.spelling import matches_api_name
from gonogo.evidence.script.syntax_index import Function


class ClassInfo(msgspec.Struct, frozen=True, eq=False):
    """One class of a script. ``bases`` are the qualified names of all its base classes, the nearest first."""

    name: str
    bases: tuple[str, ...]
    methods: Mapping[str, Function]
    node: ast.ClassDef
    script: PythonFile

    def is_subclass(self, *patterns: str) -> bool:
        """Whether it derives from a class whose qualified name matches a pattern."""
        return any(matches_api_name(pattern, base) for pattern in patterns for base in self.bases)

    def default(self, name: str) -> Field:
        """The default of one of its fields: ``x: int = 1``, also within ``field(default=1)``."""
        return _default_in_class(self.script, self.node, name, set())

    @property
    def defaults(self) -> tuple[str, ...]:
        """The names of the fields that have a default, in the order of its body."""
        return tuple(name for name, value in _class_fields(self.node) if value is not None)


def class_default(file: PythonFile, func: ast.AST, name: str) -> Field | None:
    """The default value of a field in a class of the project; None if there is none, or the class is unknown."""
    return _class_default(file, func, name, set())


def _class_default(file: PythonFile, func: ast.AST, name: str, seen: set[ast.ClassDef]) -> Field | None:
    found = file.names.class_of(func)
    if found is None or found[1] in seen:
        return None
    resolver, node = found
    owner = file
    if resolver is not file.names and file.elsewhere is not None:
        owner = file.elsewhere.file_of(resolver) or file
    field = _default_in_class(owner, node, name, seen)
    return None if field.absent else field


def _default_in_class(file: PythonFile, node: ast.ClassDef, name: str, seen: set[ast.ClassDef]) -> Field:
    """The default value of a field in a class's own body, or in its base classes within the project."""
    seen.add(node)
    for target, value in _class_fields(node):
        if target != name:
            continue
        if value is None:
            return Field.missing()
        if isinstance(value, ast.Call) and file.qualified(value.func) == "dataclasses.field":
            default = next((each.value for each in value.keywords if each.arg == "default"), None)
            return file.field(default) if default is not None else Field.not_known(file.place(value))
        return file.field(value)
    for base in node.bases:
        inherited = _class_default(file, base, name, seen)
        if inherited is not None:
            return inherited
    return Field.missing()


def _class_fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that a class's body assigns or annotates."""
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement.value
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield statement.targets[0].id, statement.value
