"""The classes of a script: what they derive from, their methods, and the defaults of their fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.document.source_file import Place
from gonogo.evidence.field import Field
from gonogo.evidence.script.kinds import NameResolver
from gonogo.evidence.script.spelling import matches

if TYPE_CHECKING:
    from gonogo.evidence.script.imports import Project
    from gonogo.evidence.script.script import Script

Function = ast.FunctionDef | ast.AsyncFunctionDef


class ClassInfo(msgspec.Struct, frozen=True, eq=False):
    """One class of a script. ``bases`` are the qualified names of all that it derives from, the nearest first."""

    name: str
    bases: tuple[str, ...]
    methods: Mapping[str, Function]
    node: ast.ClassDef
    script: Script

    def is_subclass(self, *patterns: str) -> bool:
        """Whether it derives from a class whose qualified name matches."""
        return any(matches(pattern, base) for pattern in patterns for base in self.bases)

    def default(self, name: str) -> Field:
        """The default of one of its fields: ``x: int = 1``, also within ``field(default=1)``."""
        return self.script.default_in(self.node, name)

    @property
    def defaults(self) -> tuple[str, ...]:
        """The names of the fields that have a default, as they are written in its body."""
        return tuple(name for name, value in _fields_of(self.node) if value is not None)


class Defaults:
    """The part of a script that knows what its classes' fields are by default."""

    project: Project | None

    @property
    def names(self) -> NameResolver:
        """What names stand for."""
        raise NotImplementedError

    def qualified(self, node: ast.AST) -> str | None:
        """The qualified name of what a node stands for."""
        raise NotImplementedError

    def field(self, node: ast.expr) -> Field:
        """The value of an expression."""
        raise NotImplementedError

    def place(self, node: ast.AST) -> Place:
        """Where a node stands."""
        raise NotImplementedError

    def class_default(self, func: ast.AST, name: str) -> Field | None:
        """The default that a class of the project has for a field; None where the class has none or isn't known."""
        return self._class_default(func, name, set())

    def default_in(self, node: ast.ClassDef, name: str) -> Field:
        """The default of a field in a class's own body, or in those of its bases in the project."""
        return self._default_in(node, name, set())

    def _class_default(self, func: ast.AST, name: str, seen: set[ast.ClassDef]) -> Field | None:
        found = self.names.class_of(func)
        if found is None or found[1] in seen:
            return None
        resolver, node = found
        other: Defaults = self
        if resolver is not self.names and self.project is not None:
            other = self.project.script_of(resolver) or self
        field = other._default_in(node, name, seen)
        return None if field.absent else field

    def _default_in(self, node: ast.ClassDef, name: str, seen: set[ast.ClassDef]) -> Field:
        seen.add(node)
        for target, value in _fields_of(node):
            if target != name:
                continue
            if value is None:
                return Field.missing()
            if isinstance(value, ast.Call) and self.qualified(value.func) == "dataclasses.field":
                default = next((each.value for each in value.keywords if each.arg == "default"), None)
                return self.field(default) if default is not None else Field.not_known(self.place(value))
            return self.field(value)
        for base in node.bases:
            inherited = self._class_default(base, name, seen)
            if inherited is not None:
                return inherited
        return Field.missing()


def _fields_of(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that a class's body gives values or types to."""
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement.value
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield statement.targets[0].id, statement.value
