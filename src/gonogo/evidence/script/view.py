"""What one script sees of the other files of its project: names, classes, constants, and what functions return."""

from __future__ import annotations

import ast
import os
from typing import TYPE_CHECKING

from gonogo.evidence.script.index import absolute_module
from gonogo.evidence.script.names import BaseResolver, Names
from gonogo.evidence.script.reasons import Value

if TYPE_CHECKING:
    from gonogo.evidence.script.imports import Project
    from gonogo.evidence.script.script import Script

_DEEPEST = 8
_MOST_STARS = 50
"""A module that stars more than this is a library's index: to follow it is to read the whole library."""


class View:
    """What one script sees of the project's other files; :class:`~gonogo.evidence.script.names.Elsewhere`."""

    def __init__(self, project: Project, script: Script, path: str) -> None:
        self.project = project
        self.script = script
        self.path = path
        self.folder = os.path.dirname(path)
        self.top = self.folder
        """Above the script's package: what a relative import is relative to, in the end."""
        for _ in script.package.split(".") if script.package else ():
            self.top = os.path.dirname(self.top)
        self._found: dict[str, tuple[Script, str] | None] = {}
        self._starred: dict[str, Names | None] = {}
        self._asking: set[str] = set()
        self._named: dict[str, Names | None] = {}

    def imported(self) -> tuple[Script, ...]:
        """The project's modules that the script imports, in the order of the file."""
        index = self.script.index
        found: dict[Script, None] = {}
        statements = [*index.by_type.get(ast.Import, ()), *index.by_type.get(ast.ImportFrom, ())]
        for node in sorted(statements, key=lambda each: (each.lineno, each.col_offset)):
            for dotted in self._modules_of(node):
                parts = dotted.split(".")
                for i in range(1, len(parts) + 1):
                    module = self._script(".".join(parts[:i]), getattr(node, "level", 0))
                    if module is not None and module is not self.script:
                        found[module] = None
        return tuple(found)

    def _modules_of(self, node: ast.Import | ast.ImportFrom) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        module = absolute_module(node, self.script.package)
        return [f"{module}.{alias.name}" if module else alias.name for alias in node.names if alias.name != "*"] or [
            module
        ]

    def _script(self, dotted: str, level: int = 0) -> Script | None:
        if not dotted or "" in dotted.split("."):
            return None
        path = self.project.module(dotted, self.folder)
        if path is None and self.top != self.folder and level:
            path = self.project.module(dotted, self.top)
        return self.project.script_at(path, dotted) if path is not None else None

    def _at(self, dotted: str) -> tuple[Script, str] | None:
        """The script that defines a dotted name, and the name within it (``""`` for the module itself)."""
        if dotted not in self._found:
            self._found[dotted] = self._search(dotted)
        return self._found[dotted]

    def _search(self, dotted: str) -> tuple[Script, str] | None:
        parts = dotted.split(".")
        known = self.project.knows(parts[0], self.folder) or self.project.knows(parts[0], self.top)
        if not known and parts[0] not in self.project.tops:
            return None
        for i in range(len(parts), 0, -1):
            module = ".".join(parts[:i])
            script = self._script(module, 1) or self.project.by_module.get(module)
            if script is not None and script is not self.script:
                return script, ".".join(parts[i:])
        return None

    def names(self, dotted: str) -> Names | None:
        """The names of what ``dotted`` is in the project, its own first; None where it isn't the project's."""
        if dotted in self._named:
            return self._named[dotted]
        asked = bool(self._asking)
        found = self._find_names(dotted)
        if found or not asked:  # within a question that leads back to itself, no answer is not the last word
            self._named[dotted] = found
        return found

    def _find_names(self, dotted: str) -> Names | None:
        at = self._at(dotted)
        if at is None or not at[1] or dotted in self._asking or len(self._asking) > _DEEPEST:
            return None
        script, inner = at
        first, _, rest = inner.partition(".")
        bindings = script.index.module.names.get(first)
        if not bindings:
            if script.index.module.stars:
                self._asking.add(dotted)
                try:
                    return self.project.seen_from(script).starred(inner)
                finally:
                    self._asking.discard(dotted)
            return None
        self._asking.add(dotted)
        try:
            node = bindings[-1].node
            if bindings[-1].kind == "define":
                defined = script.names.defined(node)
                return tuple(f"{each}.{rest}" for each in defined) if rest else defined
            bound = script.names.names_bound(bindings[-1])
            if rest:
                bound = tuple(f"{each}.{rest}" for each in bound)
            return bound or None
        finally:
            self._asking.discard(dotted)

    def starred(self, inner: str) -> Names | None:
        """The names of what ``from module import *`` brings in. Each is looked for once: packages star one another."""
        if inner not in self._starred:
            self._starred[inner] = None  # a circle of stars ends here
            first = inner.partition(".")[0]
            stars = self.script.index.module.stars
            for module in stars if len(stars) <= _MOST_STARS else ():
                if self.may_give(module, first) and (found := self.names(f"{module}.{inner}")):
                    self._starred[inner] = found
                    break
        return self._starred[inner]

    def may_give(self, module: str, name: str) -> bool:
        """Whether ``from module import *`` may bring a name: False where the module is at hand and has none such."""
        at = self._at(module)
        if at is None or at[1]:
            return True
        scope = at[0].index.module
        return name in scope.names or bool(scope.stars)

    def kinds(self, dotted: str) -> Names | None:
        """What made the object that a module of the project holds under that name."""
        at = self._at(dotted)
        if at is None or not at[1] or "." in at[1]:
            return None
        bindings = at[0].index.module.names.get(at[1])
        return at[0].names.kinds_agreed(bindings) if bindings else None

    def result(self, dotted: str, path: tuple[int, ...]) -> Names | None:
        """What a function of the project returns."""
        at = self._at(dotted)
        return at[0].names.returned_by(at[1], path) if at is not None and at[1] else None

    def value(self, dotted: str) -> Value | None:
        """The value of a constant in another module of the project."""
        at = self._at(dotted)
        if at is None or not at[1] or "." in at[1] or dotted in self._asking:
            return None
        self._asking.add(dotted)
        try:
            return at[0].values.module_value(at[1])
        finally:
            self._asking.discard(dotted)

    def class_at(self, dotted: str) -> tuple[BaseResolver, ast.ClassDef] | None:
        """The class of the project that a dotted name is."""
        at = self._at(dotted)
        if at is None or not at[1]:
            return None
        bindings = at[0].index.module.names.get(at[1], [])
        if len(bindings) == 1:
            if isinstance(bindings[0].node, ast.ClassDef):
                return at[0].names, bindings[0].node
            if bindings[0].kind == "import" and len(self._asking) < _DEEPEST and dotted not in self._asking:
                self._asking.add(dotted)
                try:
                    return self.project.seen_from(at[0]).class_at(bindings[0].value)
                finally:
                    self._asking.discard(dotted)
        return None
