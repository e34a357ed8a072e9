"""The Python files of one release, read from its archive: parsed, never imported, with limits on everything."""

from __future__ import annotations

import ast
import gzip
import io
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from packaging.version import Version

_MAX_MEMBERS = 60_000
_MAX_MEMBER_BYTES = 4 << 20
_MAX_TOTAL_BYTES = 192 << 20
_CHANGELOG_PATTERN = re.compile(
    r"(?i)(?:change|history|news|release)[\w-]{0,20}\.(?:md|rst|txt)|(?:change|history)[\w-]{0,10}"
)
_MAX_BASES = 8
_MAX_STARS = 4


_BROKEN_ARCHIVE_ERRORS = (
    *(OSError, EOFError, ValueError, zipfile.BadZipFile, tarfile.TarError, zlib.error, NotImplementedError),
    RuntimeError,  # encrypted member
)


class BrokenArchive(Exception):
    """The download is not an archive, or exceeds the size limits."""


class Release:
    """One release: its Python files, by path relative to the package's parent (``transformers/trainer.py``)."""

    def __init__(self, package: str, version: Version, files: Mapping[str, bytes], changelog: str = "") -> None:
        self.package = package
        self.version = version
        self.files = files
        self.changelog = changelog
        self._trees: dict[str, ast.Module | None] = {}

    def module(self, dotted: str) -> str | None:
        """The file of a module; None if it doesn't exist."""
        path = dotted.replace(".", "/")
        return next((name for name in (f"{path}.py", f"{path}/__init__.py") if name in self.files), None)

    def has_package(self, dotted: str) -> bool:
        """Whether there is a module or a package folder of that name."""
        return self.module(dotted) is not None or any(
            name.startswith(f"{dotted.replace('.', '/')}/") for name in self.files
        )

    def text(self, path: str) -> str:
        """The text of a file."""
        return self.files[path].decode("utf-8", "replace")

    def tree(self, path: str) -> ast.Module | None:
        """The syntax tree of a file; None if this Python can't parse it."""
        if path not in self._trees:
            try:
                self._trees[path] = ast.parse(self.files[path])
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                self._trees[path] = None
        return self._trees[path]

    @cached_property
    def _paths_by_depth(self) -> list[str]:
        return sorted(self.files, key=lambda path: (path.count("/"), path))

    def definitions_of(self, name: str) -> Iterator[tuple[str, ast.stmt]]:
        """The top-level definitions of a class or function, with their files."""
        words = (f"class {name}".encode(), f"def {name}".encode())
        for path in self._paths_by_depth:
            if any(word in self.files[path] for word in words) and (tree := self.tree(path)) is not None:
                for node in _statements(tree.body):
                    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
                        yield path, node

    def has_name(self, path: str, name: str, depth: int = 0) -> bool | None:
        """Whether a module has a name; None if its file doesn't tell."""
        tree = self.tree(path)
        if tree is None:
            return None
        if self.module(f"{_module_name(path)}.{name}") is not None:
            return True  # submodule
        if any(name in _bound_names(node) for node in _statements(tree.body)):
            return True
        if _is_lazy(tree):
            return self._is_lazily_exported(path, tree, name)
        starred = [node for node in _statements(tree.body) if isinstance(node, ast.ImportFrom) and _is_star(node)]
        unsure = depth >= _MAX_STARS and bool(starred)
        for node in starred[:_MAX_STARS] if depth < _MAX_STARS else ():
            source = self._star_import_module(path, node)
            found = self.has_name(source, name, depth + 1) if source is not None else None
            if found:
                return True
            unsure = unsure or found is None
        return None if unsure else False

    def _star_import_module(self, path: str, node: ast.ImportFrom) -> str | None:
        package = _module_name(path).split(".")
        if not path.endswith("/__init__.py"):
            package = package[:-1]
        if node.level:
            package = package[: len(package) - node.level + 1]
            return self.module(".".join([*package, *(node.module or "").split(".")]).rstrip("."))
        return self.module(node.module or "")

    def _is_lazily_exported(self, path: str, tree: ast.Module, name: str) -> bool:
        """Whether a lazily importing package exports the name: its names are strings, there or in a submodule."""
        if _contains_string(tree, name):
            return True
        folder = f"{path.rpartition('/')[0]}/"
        quoted = (f'"{name}"'.encode(), f"'{name}'".encode())
        for one in self._paths_by_depth:
            data = self.files[one]
            if one != path and one.startswith(folder) and any(word in data for word in quoted):
                other = self.tree(one)
                if (
                    other is not None
                    and _contains_string(other, name)
                    and any(name in _bound_names(node) for node in _statements(other.body))
                ):
                    return True
        return False

    def parameters(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[set[str], bool]:
        """The names of a function's parameters, and whether it has ``**kwargs``."""
        given = function.args
        names = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
        return names, given.kwarg is not None

    def method(self, node: ast.ClassDef, name: str, depth: int = 0) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """A method of a class or of its bases in this release; None if there is none that can be seen."""
        for one in node.body:
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.name == name:
                return one
        for base in self.bases(node) if depth < _MAX_BASES else ():
            if (found := self.method(base, name, depth + 1)) is not None:
                return found
        return None

    def bases(self, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
        """The bases of a class that are defined in this release."""
        for base in node.bases:
            name = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
            if name and name != node.name:
                yield from (one for _, one in list(self.definitions_of(name))[:1] if isinstance(one, ast.ClassDef))

    def attributes(self, node: ast.ClassDef, depth: int = 0) -> set[str]:
        """The attributes that a class and its bases define: methods, class variables, and assignments to ``self``."""
        found: set[str] = set()
        for statement in _statements(node.body):
            found |= _bound_names(statement)
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found |= _self_attributes(statement)
        for base in self.bases(node) if depth < _MAX_BASES else ():
            found |= self.attributes(base, depth + 1)
        return found


def _self_attributes(method: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The attributes that a method assigns to its first parameter (``self``)."""
    arguments = [*method.args.posonlyargs, *method.args.args]
    self_name = arguments[0].arg if arguments else ""
    return {
        one.attr
        for one in ast.walk(method)
        if isinstance(one, ast.Attribute)
        and isinstance(one.ctx, ast.Store)
        and isinstance(one.value, ast.Name)
        and one.value.id == self_name
    }


def _module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """A module's statements, including those under ``if`` and ``try``."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.For, ast.While, ast.With)):
            yield from _statements(node.body)
            yield from _statements(getattr(node, "orelse", []))
        elif isinstance(node, ast.Try):
            for part in (node.body, node.orelse, node.finalbody, *(handler.body for handler in node.handlers)):
                yield from _statements(part)


def _bound_names(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def _is_star(node: ast.ImportFrom) -> bool:
    return any(alias.name == "*" for alias in node.names)


def _contains_string(tree: ast.Module, name: str) -> bool:
    """Whether a module contains the name as a string of its own, as in ``__all__`` and tables of lazy names."""
    return any(isinstance(node, ast.Constant) and node.value == name for node in ast.walk(tree))


def _is_lazy(tree: ast.Module) -> bool:
    """Whether a module resolves names lazily."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
            return True
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("_LazyModule", "LazyModule", "lazy_import"):
                return True
    return False


# -- archives


def read_release(archive: Path, package: str, version: Version) -> Release:
    """Read a release from a wheel or a source archive. Raises BrokenArchive."""
    try:
        members = _zip_members(archive) if archive.suffix in (".whl", ".zip") else _tar_members(archive)
        files: dict[str, bytes] = {}
        changelog = ""
        total = 0
        for count, (name, data) in enumerate(members):
            total += len(data)
            if count > _MAX_MEMBERS or total > _MAX_TOTAL_BYTES:
                raise BrokenArchive(f"{archive.name}: too large")
            if name.endswith(".py"):
                files[name] = data
            elif len(data) > len(changelog):
                changelog = data.decode("utf-8", "replace")
    except _BROKEN_ARCHIVE_ERRORS as error:
        raise BrokenArchive(f"{archive.name}: {error}") from None
    if archive.suffix != ".whl":
        files = _strip_archive_root(files)
    return Release(package, version, files, changelog)


def _should_extract(name: str, size: int) -> bool:
    parts = name.split("/")
    if size > _MAX_MEMBER_BYTES or name.startswith("/") or ".." in parts:
        return False
    return name.endswith(".py") or (len(parts) <= 2 and _CHANGELOG_PATTERN.fullmatch(parts[-1]) is not None)


def _zip_members(archive: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist()[:_MAX_MEMBERS]:
            if _should_extract(member.filename, member.file_size):
                with opened.open(member) as file:
                    data = file.read(_MAX_MEMBER_BYTES + 1)
                if len(data) <= _MAX_MEMBER_BYTES:
                    yield member.filename, data


class _SizeLimitedStream(io.RawIOBase):
    """A stream that raises after too many bytes, so that no archive unpacks endlessly (zip bomb)."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self._left = 4 * _MAX_TOTAL_BYTES

    def readable(self) -> bool:
        """Always True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes."""
        data = self._file.read(min(size, 1 << 20) if size >= 0 else 1 << 20)
        self._left -= len(data)
        if self._left < 0:
            raise BrokenArchive("it unpacks to more than may be")
        return data


def _tar_members(archive: Path) -> Iterator[tuple[str, bytes]]:
    with gzip.open(archive) as unpacked, tarfile.open(fileobj=_SizeLimitedStream(unpacked), mode="r|") as opened:
        for count, member in enumerate(opened):
            if count > _MAX_MEMBERS:
                return
            if (
                member.isfile()
                and _should_extract(member.name, member.size)
                and (file := opened.extractfile(member)) is not None
            ):
                yield member.name, file.read(_MAX_MEMBER_BYTES)


def _strip_archive_root(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a source archive by path from the package's parent, without ``name-1.0/`` and ``src/``."""
    found: dict[str, bytes] = {}
    for name, data in files.items():
        inside = name.partition("/")[2]
        for folder in ("src/", "python/", "lib/"):
            inside = inside.removeprefix(folder)
        if inside and inside.partition("/")[0] not in ("tests", "test", "examples", "docs", "benchmarks"):
            found[inside] = data
    return found
