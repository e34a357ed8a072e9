"""Where Python finds the modules of a project: its folders, and what its scripts put on ``sys.path`` themselves."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence

from gonogo.evidence.script.syntax_index import ScriptIndex

_NOT_OURS = frozenset(
    {"site-packages", "dist-packages", "node_modules", "__pycache__", ".git", ".venv", "venv", ".tox"}
)


class ModuleSearch:
    """Finds modules in the folders under ``root``; each folder is listed once."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._added: list[str] = []
        self._listings: dict[str, frozenset[str]] = {}
        self._modules: dict[tuple[str, str], str | None] = {}
        self._searched: dict[str, dict[str, list[str]]] = {}

    def add(self, folders: Sequence[str]) -> bool:
        """Take folders that a script puts on ``sys.path`` into the search; whether any of them is new."""
        new = [folder for folder in dict.fromkeys(folders) if folder not in self._added]
        if not new:
            return False  # what was found stays found
        self._added += new
        self._modules.clear()
        self._searched.clear()
        return True

    def package_of(self, path: str) -> str:
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

    def is_ours(self, real: str) -> bool:
        """Whether a file or folder is the user's: under the root, and nothing that was installed there."""
        if real != self.root and not real.startswith(self.root.rstrip(os.sep) + os.sep):
            return False
        return not _NOT_OURS.intersection(real[len(self.root) :].split(os.sep))

    def module(self, dotted: str, folder: str) -> str | None:
        """The file of a module, as a script in ``folder`` would import it; None where the project has none."""
        key = (dotted, folder)
        if key not in self._modules:
            self._modules[key] = self._find_module(dotted.split("."), folder)
        return self._modules[key]

    def knows(self, top: str, folder: str) -> bool:
        """Whether any folder that a script in ``folder`` searches has a module or package of that name."""
        return top in self._search(folder)

    def _search(self, folder: str) -> dict[str, list[str]]:
        """By the first part of a module's name, the folders that have it, in the order in which they are searched."""
        searched = self._searched.get(folder)
        if searched is None:
            searched = self._searched[folder] = {}
            for path in dict.fromkeys(self._search_path(folder)):
                for name in {name.removesuffix(".py") for name in self._listing(path)}:
                    searched.setdefault(name, []).append(path)
        return searched

    def _find_module(self, parts: Sequence[str], folder: str) -> str | None:
        for base in self._search(folder).get(parts[0], ()):
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
        """Where a script in ``folder`` finds modules: what was added, its folder and those above, and ``src``."""
        found = list(self._added)
        while self.is_ours(folder):
            found.append(folder)
            if folder == self.root:
                break
            folder = os.path.dirname(folder)
        return [*found, os.path.join(self.root, "src")]


def added_paths(index: ScriptIndex, path: str) -> list[str]:
    """The folders that a script in the file at ``path`` puts on ``sys.path`` itself, where its text shows them."""
    reader = _Reader(index, path)
    found = []
    for call in index.calls:
        func = call.func
        if not (isinstance(func, ast.Attribute) and func.attr in ("insert", "append") and call.args):
            continue
        base = func.value
        if isinstance(base, ast.Attribute) and base.attr == "path" and isinstance(base.value, ast.Name):
            if base.value.id != "sys":
                continue
            folder = reader.folder(call.args[-1], 0)
            if folder is not None:
                found.append(os.path.realpath(os.path.join(os.path.dirname(path), folder)))
    return found


class _Reader:
    """Works out paths made of constants and of the script's own place."""

    def __init__(self, index: ScriptIndex, path: str) -> None:
        self.index = index
        self.path = path

    def folder(self, node: ast.AST, depth: int) -> str | None:
        """A path made of constants, ``__file__``, ``os.path`` functions and ``Path(...).parent``."""
        if depth > 20:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) and "\0" not in node.value else None
        if isinstance(node, ast.Name):
            if node.id == "__file__":
                return self.path
            bindings = self.index.module.names.get(node.id, [])
            only = bindings[0] if len(bindings) == 1 else None
            return self.folder(only.value, depth + 1) if only is not None and only.kind == "assign" else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._joined([node.left, node.right], depth)
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            inner = self.folder(node.value, depth + 1)
            return os.path.dirname(inner) if inner is not None else None
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
            inner = self.folder(node.value.value, depth + 1)
            levels = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if inner is None or not isinstance(levels, int) or not 0 <= levels < 20:
                return None
            for _ in range(levels + 1):
                inner = os.path.dirname(inner)
            return inner
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name == "dirname" and node.args:
                inner = self.folder(node.args[0], depth + 1)
                return os.path.dirname(inner) if inner is not None else None
            if name == "join":
                return self._joined(node.args, depth)
            if name in ("abspath", "realpath", "str", "Path", "normpath", "fspath") and len(node.args) == 1:
                return self.folder(node.args[0], depth + 1)
            if name in ("resolve", "absolute", "as_posix") and isinstance(node.func, ast.Attribute):
                return self.folder(node.func.value, depth + 1)
            if name == "getcwd":
                return ""
        return None

    def _joined(self, nodes: Sequence[ast.AST], depth: int) -> str | None:
        parts = [self.folder(each, depth + 1) for each in nodes]
        known = [part for part in parts if part is not None]
        return os.path.join(*known) if known and len(known) == len(parts) else None
