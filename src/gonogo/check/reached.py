"""Which functions of a run's scripts its launch can reach, so that what stands in the others makes nothing certain.

By names: what the entry's module body names, what that names in its turn, and so on. A function is left out only where
nothing that is reached speaks of it, so what is called by a registry or an override counts as reached.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from gonogo.evidence.script.script import Script

_Unit = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_PLAIN_DECORATORS = frozenset(
    {
        *("dataclass", "no_grad", "inference_mode", "wraps", "contextmanager", "lru_cache", "cache", "property"),
        *("staticmethod", "classmethod", "abstractmethod", "cached_property", "total_ordering"),
    }
)
"""Decorators that keep no list of what they decorate: what they stand on is reached by its name alone."""


class Reached:
    """The lines that a run reaches, of the scripts that belong to it; the first of them is its entry."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self._named: set[str] = set()
        self._waiting: list[ast.AST] = []
        self._by_name: dict[str, list[_Unit]] = {}
        self._open: set[_Unit] = set()
        self._units: dict[str, list[_Unit]] = {}
        self._classes: dict[str, list[ast.ClassDef]] = {}
        for number, script in enumerate(scripts):
            if script.tree is not None:
                self._take(script.tree.body, script.source.path, entry=number == 0)
        self._follow()

    def holds(self, path: str, line: int) -> bool:
        """Whether a line of a script can run, as far as names tell."""
        around = [unit for unit in self._units.get(path, ()) if unit.lineno <= line <= (unit.end_lineno or line)]
        return all(unit in self._open for unit in around)

    def _take(self, body: Sequence[ast.stmt], path: str, *, entry: bool) -> None:
        for node in body:
            if isinstance(node, _Unit):
                self._unit(node, path)
            elif entry or not _is_main_guard(node):
                for child in _blocks(node):
                    self._take(child, path, entry=entry)
                if not any(True for _ in _blocks(node)):
                    self._waiting.append(node)
                else:
                    self._waiting += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]

    def _unit(self, node: _Unit, path: str) -> None:
        self._units.setdefault(path, []).append(node)
        self._by_name.setdefault(node.name, []).append(node)
        self._waiting += node.decorator_list
        if isinstance(node, ast.ClassDef):
            self._classes.setdefault(node.name, []).append(node)
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    self._units[path].append(method)
        if any(_last_name(one) not in _PLAIN_DECORATORS for one in node.decorator_list):
            self._waiting.append(_Registered(node))

    def _follow(self) -> None:
        while self._waiting:
            node = self._waiting.pop()
            if isinstance(node, _Registered):
                self._reach(node.unit)
                continue
            for name in _names_in(node):
                if name not in self._named:
                    self._named.add(name)
                    for unit in self._by_name.get(name, ()):
                        self._reach(unit)

    def _reach(self, unit: _Unit) -> None:
        if unit in self._open:
            return
        self._open.add(unit)
        if not isinstance(unit, ast.ClassDef):
            self._waiting.append(unit)
            return
        called_from_outside = self._is_of_a_framework(unit, set())
        self._waiting += [*unit.bases, *(keyword.value for keyword in unit.keywords)]
        for one in unit.body:
            if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                self._waiting.append(one)
            elif called_from_outside or one.name in self._named or (one.name[:2] == one.name[-2:] == "__"):
                self._reach(one)
            else:
                self._waiting += one.decorator_list
                self._by_name.setdefault(one.name, []).append(one)

    def _is_of_a_framework(self, unit: ast.ClassDef, seen: set[str]) -> bool:
        """Whether it derives from a class that is not the project's, which may call any method of it."""
        for base in unit.bases:
            name = _last_name(base)
            if name in seen or name in ("object", "ABC", "Generic"):
                continue
            ours = self._classes.get(name, [])
            if not ours or any(self._is_of_a_framework(one, seen | {name}) for one in ours):
                return True
        return False


class _Registered(ast.AST):
    """A unit that its decorator may keep, and so call."""

    def __init__(self, unit: _Unit) -> None:
        super().__init__()
        self.unit = unit


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The statements that stand within an ``if``, ``try``, ``with`` or loop."""
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(node, name, None):
            yield block
    for handler in getattr(node, "handlers", ()):
        yield handler.body


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(one, ast.Name) and one.id == "__name__" for one in ast.walk(node.test)
    )


def _names_in(node: ast.AST) -> Iterator[str]:
    """All that a piece of code names: variables, attributes, what it imports under another name, names as texts."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr
        elif isinstance(one, ast.ImportFrom):
            yield from (alias.name for alias in one.names if alias.asname)
        elif isinstance(one, ast.Call):
            for given in (*one.args, *(keyword.value for keyword in one.keywords)):
                if isinstance(given, ast.Constant) and isinstance(given.value, str):
                    yield given.value


def _last_name(node: ast.expr) -> str:
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
