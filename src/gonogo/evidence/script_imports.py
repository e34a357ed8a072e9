"""The user's own modules: which files a script imports from within its project, and what they say.

Only files under the project's root are read, never installed packages; each once, however imports go round.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from pathlib import Path

from gonogo.errors import UserError
from gonogo.evidence.script import Script
from gonogo.evidence.script_index import absolute_module
from gonogo.evidence.script_names import BaseResolver, Names
from gonogo.evidence.script_values import Value
from gonogo.evidence.source_file import SourceFile

MOST_SCRIPTS = 400
_DEEPEST = 8
_NOT_OURS = frozenset(
    {"site-packages", "dist-packages", "node_modules", "__pycache__", ".git", ".venv", "venv", ".tox"}
)


class Project:
    """The files that belong to one entry script, read when they are first asked for."""

    def __init__(self, root: Path, entry: SourceFile) -> None:
        self.root = os.path.realpath(root)
        self._scripts: dict[str, Script | None] = {}
        self._listings: dict[str, frozenset[str]] = {}
        self._views: dict[Script, View] = {}
        self._resolvers: dict[int, Script] = {}
        self._modules: dict[tuple[str, str], str | None] = {}
        path = os.path.realpath(entry.path)
        self.entry = self._made(entry, path)
        self._scripts[path] = self.entry
        self._paths: list[str] | None = None

    @classmethod
    def around(cls, source: SourceFile) -> Project:
        """The project of a script that is read alone: its folder, or the one above its package."""
        folder = os.path.dirname(os.path.realpath(source.path))
        for _ in range(_DEEPEST):
            if not os.path.exists(os.path.join(folder, "__init__.py")):
                break
            folder = os.path.dirname(folder)
        return cls(Path(folder), source)

    def _made(self, source: SourceFile, path: str, module: str = "") -> Script:
        script = Script(source, self, self._package_of(path), module)
        self._views[script] = View(self, script, path)
        return script

    def _package_of(self, path: str) -> str:
        """The package of a file by the ``__init__.py`` files above it."""
        parts: list[str] = []
        folder = os.path.dirname(path)
        while "__init__.py" in self._listing(folder) and len(parts) < 20:
            parts.append(os.path.basename(folder))
            folder = os.path.dirname(folder)
        return ".".join(reversed(parts))

    def _listing(self, folder: str) -> frozenset[str]:
        found = self._listings.get(folder)
        if found is None:
            try:
                found = frozenset(os.listdir(folder))
            except (OSError, ValueError):
                found = frozenset()
            self._listings[folder] = found
        return found

    def seen_from(self, script: Script) -> View:
        """What a script sees of the others."""
        return self._views[script]

    def script_of(self, resolver: BaseResolver) -> Script | None:
        """The script that names are resolved for."""
        return next((script for script in self._views if script.names is resolver), None)

    def imported_by(self, script: Script) -> tuple[Script, ...]:
        """The modules of the project that a script imports itself."""
        return self._views[script].imported()

    def all_scripts(self) -> tuple[Script, ...]:
        """The entry and what it imports, and what those import, in the order in which they are met."""
        found: dict[Script, None] = {self.entry: None}
        queue = [self.entry]
        while queue:
            for each in self.imported_by(queue.pop(0)):
                if each not in found and len(found) < MOST_SCRIPTS:
                    found[each] = None
                    queue.append(each)
        return tuple(found)

    def script_at(self, path: str, module: str) -> Script | None:
        """The script in a file of the project, imported as ``module``; None where it can't be read or too many were."""
        real = os.path.realpath(path)
        if real in self._scripts:
            return self._scripts[real]
        if len(self._scripts) >= MOST_SCRIPTS or not self._is_ours(real):
            return None
        try:
            source = SourceFile.read(self._shown(real))
        except UserError:
            self._scripts[real] = None
            return None
        script = self._scripts[real] = self._made(source, real, module)
        return script

    def _shown(self, real: str) -> str:
        """A file's path as users are shown it: as the entry's was given, absolute or not."""
        folder = os.path.dirname(self.entry.path)
        return os.path.normpath(os.path.join(folder, os.path.relpath(real, os.path.realpath(folder or "."))))

    def _is_ours(self, real: str) -> bool:
        if real != self.root and not real.startswith(self.root.rstrip(os.sep) + os.sep):
            return False
        return not _NOT_OURS.intersection(real[len(self.root) :].split(os.sep))

    def module(self, dotted: str, folder: str) -> str | None:
        """The file of a module, as a script in ``folder`` would import it; None where the project has none."""
        key = (dotted, folder)
        if key not in self._modules:
            self._modules[key] = self._find_module(dotted.split("."), folder)
        return self._modules[key]

    def _find_module(self, parts: Sequence[str], folder: str) -> str | None:
        for base in self._search_path(folder):
            found = self._in_folder(parts, base)
            if found is not None:
                return found
        return None

    def _in_folder(self, parts: Sequence[str], base: str) -> str | None:
        for i, part in enumerate(parts):
            listing = self._listing(base)
            last = i + 1 == len(parts)
            if part in listing:
                inner = os.path.join(base, part)
                if last and "__init__.py" in self._listing(inner):
                    return os.path.join(inner, "__init__.py")
                if not last and self._listing(inner):
                    base = inner
                    continue
            return os.path.join(base, f"{part}.py") if last and f"{part}.py" in listing else None
        return None

    def _search_path(self, folder: str) -> list[str]:
        if self._paths is None:
            entry = os.path.dirname(os.path.realpath(self.entry.path))
            added = self._views[self.entry].added_paths()
            self._paths = list(dict.fromkeys([*added, entry, self.root, os.path.join(self.root, "src")]))
        return self._paths if folder in self._paths else [*self._paths, folder]


class View:
    """What one script sees of the project's other files; :class:`~gonogo.evidence.script_names.Elsewhere`."""

    def __init__(self, project: Project, script: Script, path: str) -> None:
        self.project = project
        self.script = script
        self.path = path
        self.folder = os.path.dirname(path)
        self._found: dict[str, tuple[Script, str] | None] = {}
        self._asking: set[str] = set()

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
        if path is None and self.script.package and level:  # a relative import, from the package's own parent
            top = self.folder
            for _ in self.script.package.split("."):
                top = os.path.dirname(top)
            path = self.project.module(dotted, top)
        return self.project.script_at(path, dotted) if path is not None else None

    def _at(self, dotted: str) -> tuple[Script, str] | None:
        """The script that defines a dotted name, and the name within it (``""`` for the module itself)."""
        if dotted not in self._found:
            self._found[dotted] = self._search(dotted)
        return self._found[dotted]

    def _search(self, dotted: str) -> tuple[Script, str] | None:
        parts = dotted.split(".")
        for i in range(len(parts), 0, -1):
            script = self._script(".".join(parts[:i]), 1)
            if script is not None and script is not self.script:
                return script, ".".join(parts[i:])
        return None

    def names(self, dotted: str) -> Names | None:
        """The names of what ``dotted`` is in the project, its own first; None where it isn't the project's."""
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
                    for module in script.index.module.stars:
                        found = self.project.seen_from(script).names(f"{module}.{inner}")
                        if found:
                            return found
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

    def added_paths(self) -> list[str]:
        """The folders that the script puts on ``sys.path`` itself, where the project shows them."""
        found = []
        for call in self.script.index.calls:
            func = call.func
            if not (isinstance(func, ast.Attribute) and func.attr in ("insert", "append") and call.args):
                continue
            base = func.value
            if isinstance(base, ast.Attribute) and base.attr == "path" and isinstance(base.value, ast.Name):
                if base.value.id != "sys":
                    continue
                folder = self._folder(call.args[-1], 0)
                if folder is not None:
                    found.append(os.path.realpath(os.path.join(self.folder, folder)))
        return found

    def _folder(self, node: ast.AST, depth: int) -> str | None:
        """A path made of constants, ``__file__``, ``os.path`` functions and ``Path(...).parent``."""
        if depth > 20:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) and "\0" not in node.value else None
        if isinstance(node, ast.Name):
            if node.id == "__file__":
                return self.path
            bindings = self.script.index.module.names.get(node.id, [])
            only = bindings[0] if len(bindings) == 1 else None
            return self._folder(only.value, depth + 1) if only is not None and only.kind == "assign" else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._joined([node.left, node.right], depth)
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            inner = self._folder(node.value, depth + 1)
            return os.path.dirname(inner) if inner is not None else None
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
            inner = self._folder(node.value.value, depth + 1)
            levels = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if inner is None or not isinstance(levels, int) or not 0 <= levels < 20:
                return None
            for _ in range(levels + 1):
                inner = os.path.dirname(inner)
            return inner
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name == "dirname" and node.args:
                inner = self._folder(node.args[0], depth + 1)
                return os.path.dirname(inner) if inner is not None else None
            if name == "join":
                return self._joined(node.args, depth)
            if name in ("abspath", "realpath", "str", "Path", "normpath", "fspath") and len(node.args) == 1:
                return self._folder(node.args[0], depth + 1)
            if name in ("resolve", "absolute", "as_posix") and isinstance(node.func, ast.Attribute):
                return self._folder(node.func.value, depth + 1)
            if name == "getcwd":
                return ""
        return None

    def _joined(self, nodes: Sequence[ast.AST], depth: int) -> str | None:
        parts = [self._folder(each, depth + 1) for each in nodes]
        known = [part for part in parts if part is not None]
        return os.path.join(*known) if known and len(known) == len(parts) else None
