"""Where Python finds a project's modules: its folders, and those that its scripts add to ``sys.path``."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence

import msgspec

from gonogo.evidence.script.syntax_index import ScriptIndex

_NON_PROJECT_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "node_modules", "__pycache__", ".git", ".venv", "venv", ".tox"}
)


_ROOT_FINDERS = frozenset({"rootutils", "pyrootutils"})
"""Packages that look for the project's root above a file and, if told so, put it on ``sys.path``."""
_ROOT_FINDERS_ON_IMPORT = frozenset({"autoroot", "autorootcwd"})
_ROOT_INDICATORS = (".project-root", "setup.cfg", "setup.py", ".git", "pyproject.toml")


class PythonPath(msgspec.Struct, frozen=True):
    """Where a launch's Python looks for the project's modules: its ``sys.path`` without installed packages."""

    folders: tuple[str, ...]
    """The program's folder (for ``-m`` the working directory), then ``PYTHONPATH``."""
    installed: tuple[str, ...] = ()
    """The folders that editable installs of the project's own package add, after all others."""
    cwd: str = ""
    """The folder to which relative entries are relative."""
    complete: bool = True
    """True if ``sys.path`` has no further entries that the files don't reveal."""


class SysPathAddition(msgspec.Struct, frozen=True):
    """A folder that a script adds to ``sys.path``. ``folder`` is None if it can't be determined statically."""

    folder: str | None
    first: bool
    line: int


class ModuleSearch:
    """Finds modules in the folders under ``root``; each folder is listed once.

    Without a ``path`` it is unknown how a script is started: then its folder and those above it are searched.
    """

    def __init__(self, root: str, path: PythonPath | None = None) -> None:
        self.root = root
        self.path = path
        self.unread: list[int] = []
        """Lines at which a script changes ``sys.path`` in a way that its text doesn't show."""
        self._added: list[str] = []
        self._appended: list[str] = []
        self._listings: dict[str, frozenset[str]] = {}
        self._modules: dict[tuple[str, str], str | None] = {}
        self._searched: dict[str, dict[str, list[str]]] = {}

    def add(self, new_entries: Sequence[SysPathAddition]) -> bool:
        """Add folders that a script adds to ``sys.path``; True if any of them is new."""
        self.unread += [each.line for each in new_entries if each.folder is None]
        known = {*self._added, *self._appended}
        new = [each for each in new_entries if each.folder is not None and each.folder not in known]
        if not new:
            return False  # results found so far remain valid
        for each in new:
            (self._added if each.first or self.path is None else self._appended).append(str(each.folder))
        self._modules.clear()
        self._searched.clear()
        return True

    def package_of(self, path: str) -> str:
        """The dotted package of a file, by the ``__init__.py`` files above it."""
        parts: list[str] = []
        folder = os.path.dirname(path)
        while "__init__.py" in self._list_folder(folder) and len(parts) < 20:
            parts.append(os.path.basename(folder))
            folder = os.path.dirname(folder)
        return ".".join(reversed(parts))

    def _list_folder(self, folder: str) -> frozenset[str]:
        found = self._listings.get(folder)
        if found is None:
            try:
                found = frozenset(os.listdir(folder))
            except (OSError, ValueError):
                found = frozenset()
            self._listings[folder] = found
        return found

    def is_project_path(self, real_path: str) -> bool:
        """Whether a file or folder is the user's: under the root, and not in an installed package there.

        What an editable install adds is the user's too: a program outside a checkout may import the checkout's package.
        """
        path = self.path
        more = () if path is None else (*path.folders, *self._added, *self._appended, *path.installed)
        roots = (self.root, *more)
        root = next(
            (each for each in roots if real_path == each or real_path.startswith(each.rstrip(os.sep) + os.sep)), None
        )
        return root is not None and not _NON_PROJECT_FOLDERS.intersection(real_path[len(root) :].split(os.sep))

    def relative_import_file(self, dotted: str, package_root: str) -> str | None:
        """The file of a module that a relative import names, below the folder that contains the package."""
        return self._find_in_folder(dotted.split("."), package_root)

    def module_file(self, dotted: str, folder: str) -> str | None:
        """The file of a module, as a script in ``folder`` would import it; None if the project has none."""
        key = (dotted, folder)
        if key not in self._modules:
            self._modules[key] = self._find_module(dotted.split("."), folder)
        return self._modules[key]

    def has_module(self, module_name: str, folder: str) -> bool:
        """Whether any folder searched by a script in ``folder`` has a module or package of that name."""
        return module_name in self._folders_by_module_name(folder)

    def _folders_by_module_name(self, folder: str) -> dict[str, list[str]]:
        """For each top-level module name, the folders that contain it, in search order."""
        searched = self._searched.get(folder)
        if searched is None:
            searched = self._searched[folder] = {}
            for path in dict.fromkeys(self._search_path(folder)):
                for name in {name.removesuffix(".py") for name in self._list_folder(path)}:
                    searched.setdefault(name, []).append(path)
        return searched

    def _find_module(self, parts: Sequence[str], folder: str) -> str | None:
        for base in self._folders_by_module_name(folder).get(parts[0], ()):
            found = self._find_in_folder(parts, base)
            if found is not None:
                return found
        return None

    def _find_in_folder(self, parts: Sequence[str], base: str) -> str | None:
        for i, part in enumerate(parts):
            listing = self._list_folder(base)
            last = i + 1 == len(parts)
            if part in listing:
                inner = os.path.join(base, part)
                if last and "__init__.py" in self._list_folder(inner):
                    return os.path.join(inner, "__init__.py")
                if not last and self._list_folder(inner):
                    base = inner
                    continue
            return os.path.join(base, f"{part}.py") if last and f"{part}.py" in listing else None
        return None

    def _search_path(self, folder: str) -> list[str]:
        """The folders in which a script in ``folder`` finds modules: added ones, its own and its parents, ``src``."""
        if self.path is not None:
            return [*self._added, *self.path.folders, *self._appended, *self.path.installed]
        found = list(self._added)
        while self.is_project_path(folder):
            found.append(folder)
            if folder == self.root:
                break
            folder = os.path.dirname(folder)
        return [*found, os.path.join(self.root, "src")]


def may_change_sys_path(data: bytes) -> bool:
    """Whether a script has the words without which it can't change ``sys.path``; quick."""
    return (b"sys" in data and b"path" in data) or b"rootutils" in data or b"autoroot" in data


def sys_path_additions(index: ScriptIndex, path: str, cwd: str = "") -> list[SysPathAddition]:
    """The folders that a script in the file at ``path`` adds to ``sys.path``, as far as can be determined.

    Relative ones are resolved against ``cwd``, where the program is started; if that is unknown, the file's folder.
    """
    reader = _PathEvaluator(index, path, cwd)
    base = cwd or os.path.dirname(path)
    found: list[SysPathAddition] = []

    def add_path(node: ast.AST, *, at_front: bool, line: int) -> None:
        folder = reader.evaluate_path(node, 0)
        whole = os.path.realpath(os.path.join(base, folder)) if folder is not None else None
        found.append(SysPathAddition(whole, at_front, line))

    if any(alias.name in _ROOT_FINDERS_ON_IMPORT for node in index.by_type.get(ast.Import, ()) for alias in node.names):
        found.append(SysPathAddition(_root_above(path, _ROOT_INDICATORS), True, 1))
    for call in index.calls:
        func = call.func
        if _is_root_finder(index, func):
            found += _added_root(reader, call, path)
            continue
        if not (isinstance(func, ast.Attribute) and call.args):
            continue
        if func.attr in ("insert", "append") and _is_sys_path(index, func.value):
            add_path(call.args[-1], at_front=func.attr == "insert", line=call.lineno)
        elif func.attr == "extend" and _is_sys_path(index, func.value):
            for node in call.args[0].elts if isinstance(call.args[0], (ast.List, ast.Tuple)) else [call.args[0]]:
                add_path(node, at_front=False, line=call.lineno)
        elif func.attr == "addsitedir" and isinstance(func.value, ast.Name) and func.value.id == "site":
            add_path(call.args[0], at_front=False, line=call.lineno)
    for statement in (*index.by_type.get(ast.Assign, ()), *index.by_type.get(ast.AugAssign, ())):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if not any(_is_sys_path(index, target) for target in targets):
            continue
        own, kept = _list_with_sys_path(index, statement.value)
        first = isinstance(statement, ast.Assign) and kept != 0
        for node in own if own is not None else [statement.value]:
            add_path(node, at_front=first, line=statement.lineno)
    return found


def _is_root_finder(index: ScriptIndex, func: ast.expr) -> bool:
    """Whether a call is ``rootutils.setup_root`` or ``set_root``, imported in either way."""
    if isinstance(func, ast.Attribute) and func.attr in ("setup_root", "set_root") and isinstance(func.value, ast.Name):
        bindings = index.module.names.get(func.value.id, [])
        return any(each.kind == "import" and each.value in _ROOT_FINDERS for each in bindings)
    bindings = index.module.names.get(func.id, []) if isinstance(func, ast.Name) else []
    named = [str(each.value) for each in bindings if each.kind == "import"]
    return any(name.partition(".")[0] in _ROOT_FINDERS and name.endswith(("setup_root", "set_root")) for name in named)


def _added_root(reader: _PathEvaluator, call: ast.Call, path: str) -> list[SysPathAddition]:
    """What ``setup_root(__file__, indicator=…, pythonpath=True)`` puts in front of ``sys.path``."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    on_path = given.get("pythonpath")
    if on_path is None and len(call.args) < 3 and None not in given:
        return []
    if isinstance(on_path, ast.Constant) and not on_path.value:
        return []
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    first = call.args[0] if call.args else given.get("search_from", given.get("path"))
    start = reader.evaluate_path(first, 0) if first is not None else None
    folder = os.path.realpath(os.path.join(reader.cwd or os.path.dirname(path), start)) if start is not None else None
    indicator = given.get("indicator", call.args[1] if len(call.args) > 1 else None)
    if folder is not None and name.endswith("setup_root"):
        try:
            indicators = ast.literal_eval(indicator) if indicator is not None else _ROOT_INDICATORS
        except ValueError:
            indicators = ()
        names = (
            (indicators,) if isinstance(indicators, str) else tuple(one for one in indicators if isinstance(one, str))
        )
        folder = _root_above(folder, names)
    return [SysPathAddition(folder, True, call.lineno)]


def _root_above(path: str, indicators: Sequence[str]) -> str | None:
    """The nearest folder at or above a path that has one of the files."""
    folder = os.path.realpath(path)
    while True:
        if any(os.path.exists(os.path.join(folder, name)) for name in indicators):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _is_sys_path(index: ScriptIndex, node: ast.AST) -> bool:
    """Whether a node is ``sys.path``, under any name."""
    if isinstance(node, ast.Attribute) and node.attr == "path" and isinstance(node.value, ast.Name):
        bindings = index.module.names.get(node.value.id, [])
        return any(each.kind == "import" and each.value == "sys" for each in bindings) or node.value.id == "sys"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):  # sys.path[0:0] = […]
        return _is_sys_path(index, node.value)
    bindings = index.module.names.get(node.id, []) if isinstance(node, ast.Name) else []
    return any(each.kind == "import" and each.value == "sys.path" for each in bindings)


def _list_with_sys_path(index: ScriptIndex, node: ast.AST) -> tuple[list[ast.expr] | None, int]:
    """The entries of ``[a, b] + sys.path`` or ``sys.path + [a]``, and the index at which the old ones stay."""
    if isinstance(node, (ast.List, ast.Tuple)):
        kept = [i for i, each in enumerate(node.elts) if isinstance(each, ast.Starred)]
        return [each for each in node.elts if not isinstance(each, ast.Starred)], kept[0] if kept else 1
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        if _is_sys_path(index, node.left):
            return _list_with_sys_path(index, node.right)[0], 0
        if _is_sys_path(index, node.right):
            return _list_with_sys_path(index, node.left)[0], 1
    return None, 1


class _PathEvaluator:
    """Evaluates paths made of constants and of the script's own location."""

    def __init__(self, index: ScriptIndex, path: str, cwd: str = "") -> None:
        self.index = index
        self.path = path
        self.cwd = cwd

    def evaluate_path(self, node: ast.AST, depth: int) -> str | None:
        """The path that an expression of constants, ``__file__``, ``os.path`` and ``Path(...).parent`` amounts to."""
        if depth > 20:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) and "\0" not in node.value else None
        if isinstance(node, ast.Name):
            if node.id == "__file__":
                return self.path
            bindings = self.index.module.names.get(node.id, [])
            only = bindings[0] if len(bindings) == 1 else None
            return self.evaluate_path(only.value, depth + 1) if only is not None and only.kind == "assign" else None
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)):
            values = node.values if isinstance(node, ast.JoinedStr) else [node.left, node.right]
            parts = [
                self.evaluate_path(each.value if isinstance(each, ast.FormattedValue) else each, depth + 1)
                for each in values
            ]
            return "".join(part or "" for part in parts) if None not in parts else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._join_folders([node.left, node.right], depth)
        if isinstance(node, ast.Attribute) and node.attr in ("pardir", "curdir"):
            return ".." if node.attr == "pardir" else "."
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            inner = self.evaluate_path(node.value, depth + 1)
            return os.path.dirname(inner) if inner is not None else None
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
            inner = self.evaluate_path(node.value.value, depth + 1)
            levels = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if inner is None or not isinstance(levels, int) or not 0 <= levels < 20:
                return None
            for _ in range(levels + 1):
                inner = os.path.dirname(inner)
            return inner
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name == "dirname" and node.args:
                inner = self.evaluate_path(node.args[0], depth + 1)
                return os.path.dirname(inner) if inner is not None else None
            if name == "join":
                return self._join_folders(node.args, depth)
            if (
                name in ("abspath", "realpath", "str", "Path", "PurePath", "normpath", "fspath", "expanduser")
                and len(node.args) == 1
            ):
                return self.evaluate_path(node.args[0], depth + 1)
            if name in ("resolve", "absolute", "as_posix") and isinstance(node.func, ast.Attribute):
                return self.evaluate_path(node.func.value, depth + 1)
            if name in ("getcwd", "cwd"):
                return self.cwd
        return None

    def _join_folders(self, nodes: Sequence[ast.AST], depth: int) -> str | None:
        parts = [self.evaluate_path(each, depth + 1) for each in nodes]
        known = [part for part in parts if part is not None]
        return os.path.join(*known) if known and len(known) == len(parts) else None
