"""Which functions of a run's scripts its launch can reach: code in the others can't be certain to fail the run.

Based on names: those used in the entry's module body, those used by what they refer to, and so on. A function is only
unreachable if no reachable code mentions its name, so functions called through a registry or an override count as
reachable. ``model.train`` only refers to methods; a module's function must be named directly or through an import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache

from gonogo.evidence.script.script import Script
from gonogo.evidence.script.syntax_index import walk

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_PLAIN_DECORATORS = frozenset(
    {
        *("dataclass", "no_grad", "inference_mode", "wraps", "contextmanager", "lru_cache", "cache", "property"),
        *("staticmethod", "classmethod", "abstractmethod", "cached_property", "total_ordering"),
    }
)
"""Decorators that register nothing: what they decorate is only reached by its name."""


class ReachableCode:
    """The lines of a run's scripts that can be reached; the first script is its entry.

    ``entry_function``: a function of the entry that the launch itself calls, as a console script does.
    """

    def __init__(self, scripts: Sequence[Script], entry_function: str = "") -> None:
        self._named: set[str] = set()
        self._of_objects: set[str] = set()
        self._waiting: list[tuple[ast.AST, Script]] = []
        self._by_name: dict[str, list[_Definition]] = {}
        self._open: set[_Definition] = set()
        self._methods: dict[str, list[_Definition]] = {}
        self._scripts: dict[_Definition, Script] = {}
        self._units: dict[str, list[_Definition]] = {}
        self._classes: dict[str, list[ast.ClassDef]] = {}
        for number, script in enumerate(scripts):
            if script.tree is not None:
                self._add_statements(script.tree.body, script, entry=number == 0)
                if number == 0 and entry_function:
                    self._waiting.append((ast.Name(entry_function, ast.Load()), script))
        self._follow_names()

    def is_reachable(self, path: str, line: int) -> bool:
        """Whether a line of a script can run, as far as names show."""
        around = [unit for unit in self._units.get(path, ()) if unit.lineno <= line <= (unit.end_lineno or line)]
        return all(unit in self._open for unit in around)

    def _add_statements(self, body: Sequence[ast.stmt], script: Script, *, entry: bool) -> None:
        for node in body:
            if isinstance(node, _Definition):
                self._add_definition(node, script)
            elif entry or not _is_main_guard(node):
                for child in _nested_blocks(node):
                    self._add_statements(child, script, entry=entry)
                if not any(True for _ in _nested_blocks(node)):
                    self._waiting.append((node, script))
                else:
                    inside = (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
                    self._waiting += [(each, script) for each in inside]

    def _add_definition(self, node: _Definition, script: Script) -> None:
        units = self._units.setdefault(script.source.path, [])
        units.append(node)
        self._by_name.setdefault(node.name, []).append(node)
        self._scripts[node] = script
        self._waiting += [(each, script) for each in node.decorator_list]
        if isinstance(node, ast.ClassDef):
            self._classes.setdefault(node.name, []).append(node)
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    units.append(method)
                    self._scripts[method] = script
        if any(_last_name(one) not in _PLAIN_DECORATORS for one in node.decorator_list):
            self._waiting.append((_RegisteredDefinition(node), script))

    def _follow_names(self) -> None:
        while self._waiting:
            node, script = self._waiting.pop()
            if isinstance(node, _RegisteredDefinition):
                self._mark_reachable(node.unit)
                continue
            for name, of_object in _names_in(node, script):
                named = self._of_objects if of_object else self._named
                if name not in named:
                    named.add(name)
                    for unit in (*self._methods.get(name, ()), *(() if of_object else self._by_name.get(name, ()))):
                        self._mark_reachable(unit)

    def _mark_reachable(self, unit: _Definition) -> None:
        if unit in self._open:
            return
        self._open.add(unit)
        script = self._scripts[unit]
        if not isinstance(unit, ast.ClassDef):
            self._waiting.append((unit, script))
            return
        called_from_outside = self._has_external_base(unit, set())
        self._waiting += [(one, script) for one in (*unit.bases, *(keyword.value for keyword in unit.keywords))]
        for one in unit.body:
            if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                self._waiting.append((one, script))
            elif called_from_outside or self._is_named(one.name) or (one.name[:2] == one.name[-2:] == "__"):
                self._mark_reachable(one)
            else:
                self._waiting += [(each, script) for each in one.decorator_list]
                self._methods.setdefault(one.name, []).append(one)

    def _is_named(self, name: str) -> bool:
        """Whether reachable code uses this name, as a variable or as an attribute."""
        return name in self._named or name in self._of_objects

    def _has_external_base(self, unit: ast.ClassDef, seen: set[str]) -> bool:
        """Whether the class has a base class outside the project, which may call any of its methods."""
        for base in unit.bases:
            name = _last_name(base)
            if name in seen or name in ("object", "ABC", "Generic"):
                continue
            ours = self._classes.get(name, [])
            if not ours or any(self._has_external_base(one, seen | {name}) for one in ours):
                return True
        return False


@lru_cache(maxsize=16)
def reachable_from(scripts: tuple[Script, ...], entry_function: str = "") -> ReachableCode:
    """The code reachable from the first of these scripts; cached for launches of the same program."""
    return ReachableCode(scripts, entry_function)


class _RegisteredDefinition(ast.AST):
    """A definition that its decorator may register, and so call."""

    def __init__(self, unit: _Definition) -> None:
        super().__init__()
        self.unit = unit


def _nested_blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The nested blocks of an ``if``, ``try``, ``with`` or loop."""
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(node, name, None):
            yield block
    for handler in getattr(node, "handlers", ()):
        yield handler.body


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(one, ast.Name) and one.id == "__name__" for one in ast.walk(node.test)
    )


def _imported_names(script: Script) -> Iterator[str]:
    """The names bound by a file's imports, at any level."""
    for node in (*script.nodes(ast.Import), *script.nodes(ast.ImportFrom)):
        assert isinstance(node, ast.Import | ast.ImportFrom)
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)


def _names_in(node: ast.AST, script: Script) -> frozenset[tuple[str, bool]]:
    """All names in a piece of code, and for each whether it is an attribute of an object rather than of a module."""
    known = script.named_in
    if script.tree is not None and script.tree not in known:
        known[script.tree] = frozenset((name, False) for name in _imported_names(script))
    if node not in known:
        known[node] = frozenset(_names_of(node, {name for name, _ in known[script.tree]} if script.tree else set()))
    return known[node]


def _names_of(node: ast.AST, imported: set[str]) -> Iterator[tuple[str, bool]]:
    for one in walk(node):
        if isinstance(one, ast.Name):
            yield one.id, False
        elif isinstance(one, ast.Attribute):
            root = one.value
            while isinstance(root, ast.Attribute):
                root = root.value
            yield one.attr, not (isinstance(root, ast.Name) and root.id in imported)
        elif isinstance(one, ast.ImportFrom):
            yield from ((alias.name, False) for alias in one.names if alias.asname)
        elif isinstance(one, ast.Call):
            for given in (*one.args, *(keyword.value for keyword in one.keywords)):
                if isinstance(given, ast.Constant) and isinstance(given.value, str):
                    yield given.value, False


def _last_name(node: ast.expr) -> str:
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
