"""The Python code of a package that has no wheel for this machine since it is compiled with nvcc.

It is taken from the package's sources; nothing of them is run. Each extension module that their ``setup.py`` compiles
is replaced by one that has the names which the package's code uses of it: a program can import the package, and is
stopped, as at any operator without a stand-in, once it calls a compiled function.
"""

from __future__ import annotations

import ast
import re
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement

from gonogo.finding import Text
from gonogo.prepare.packages.names import STOOD_IN_PATTERN
from gonogo.prepare.packages.places import ReportProgress
from gonogo.prepare.packages.sources import SourceUnavailable, fetch_release_sources

_EXTENSION_PATTERN = re.compile(r"""\b(?:CUDA|Cpp)?Extension\(\s*(?:name\s*=\s*)?f?["']([A-Za-z_][\w.]*)["']""")
_NVCC_PATTERN = re.compile(r"\bCUDAExtension\b|\bnvcc\b|CUDA_HOME")
_NOT_PACKAGES = frozenset({"tests", "test", "benchmarks", "benchmark", "docs", "examples", "scripts", "tools", "build"})
_ROOTS = ("", "src", "python")
"""Folders of an archive in which its packages lie."""
_KEPT_SUFFIXES = frozenset({".py", ".pyi", ".json", ".yaml", ".yml", ".txt", ".typed"})
_MAX_FILE_BYTES = 4 << 20
_MAX_FILES = 5000
_MODULE_TEXT = '''\
"""In place of a module that is compiled with nvcc: its names exist, and stop a rehearsal that uses one."""

from gonogo.virtual.kernels.compiled_names import compiled_names

__getattr__ = compiled_names(__name__, {names!r})
'''


@dataclass(frozen=True)
class PythonPart:
    """A package's code without its compiled modules: its files, by path below ``site-packages``."""

    name: str
    version: str
    requirements: tuple[str, ...]
    files: dict[str, bytes]


def fetch_python_part(
    name: str, specifier: str, as_of: str | None, folder: Path, activity: Text, report_progress: ReportProgress
) -> PythonPart | None:
    """The Python part of a package's newest release that matches; None if it has none, or isn't compiled with nvcc."""
    if STOOD_IN_PATTERN.fullmatch(name) is not None:
        return None
    try:
        source = fetch_release_sources(name, specifier, as_of, folder, activity, report_progress)
        return read_python_part(name, source.path)
    except (SourceUnavailable, tarfile.TarError, OSError):
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_python_part(name: str, archive: Path) -> PythonPart | None:
    """The same of an archive of sources (``.tar.gz``)."""
    if not tarfile.is_tarfile(archive):
        return None
    found = dict(_text_files(archive))
    setup = found.get("setup.py", b"").decode("utf-8", "replace")
    if _NVCC_PATTERN.search(setup) is None:
        return None
    root = next((root for root in _ROOTS if _packages_below(found, root)), None)
    if root is None:
        return None
    packages = _packages_below(found, root)
    start = f"{root}/" if root else ""
    files = {path[len(start) :]: data for path, data in found.items() if path.startswith(tuple(packages))}
    for module in dict.fromkeys(_EXTENSION_PATTERN.findall(setup)):
        names = sorted(set(_names_used(module, files)))
        files[f"{module.replace('.', '/')}.py"] = _MODULE_TEXT.format(names=names).encode()
    stated = found.get("PKG-INFO", b"").decode("utf-8", "replace")
    version = re.search(r"(?m)^Version: (\S+)", stated)
    if version is None:
        return None
    requirements = tuple(_requirements(found))
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version[1]}\n"]
    lines += [f"Requires-Dist: {line}\n" for line in requirements]
    folder = f"{name.replace('-', '_')}-{version[1]}.dist-info"
    files |= {f"{folder}/METADATA": "".join(lines).encode(), f"{folder}/INSTALLER": b"gonogo\n"}
    tops = dict.fromkeys(path.partition("/")[0].removesuffix(".py") for path in files if ".dist-info/" not in path)
    files[f"{folder}/top_level.txt"] = "".join(f"{top}\n" for top in tops).encode()
    return PythonPart(name, version[1], requirements, files)


def write_python_part(part: PythonPart, packages: Path) -> None:
    """Put a package's files into ``site-packages``; those that are there stay."""
    for path, data in part.files.items():
        file = packages / path
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


def _text_files(archive: Path) -> Iterator[tuple[str, bytes]]:
    """The archive's files that are no code of another language, by path below its one folder."""
    with tarfile.open(archive) as opened:
        for number, member in enumerate(opened):
            path = PurePosixPath(member.name)
            parts = path.parts[1:]
            if number > _MAX_FILES or not parts or ".." in parts or path.is_absolute():
                continue
            is_kept = path.suffix in _KEPT_SUFFIXES or path.name == "PKG-INFO"
            if member.isfile() and is_kept and member.size <= _MAX_FILE_BYTES:
                content = opened.extractfile(member)
                if content is not None:
                    yield "/".join(parts), content.read()


def _packages_below(files: dict[str, bytes], root: str) -> list[str]:
    """The top folders with an ``__init__.py`` in a folder of the archive, each with a slash at its end."""
    start = f"{root}/" if root else ""
    tops = (path[len(start) :].split("/") for path in files if path.startswith(start))
    names = (parts[0] for parts in tops if len(parts) == 2 and parts[1] == "__init__.py")
    return [f"{start}{name}/" for name in dict.fromkeys(names) if name not in _NOT_PACKAGES]


def _names_used(module: str, files: dict[str, bytes]) -> Iterator[str]:
    """The names that the package's code takes from a compiled module."""
    last = module.rpartition(".")[2]
    for path, data in files.items():
        if not path.endswith(".py") or last.encode() not in data:
            continue
        try:
            tree = ast.parse(data)
        except (SyntaxError, ValueError):
            continue
        bound = {last, *_aliases(tree, last)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
                if owner in bound and not node.attr.startswith("__"):
                    yield node.attr
            elif isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] == last:
                yield from (one.name for one in node.names if one.name != "*")


def _aliases(tree: ast.AST, module: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for one in node.names:
                if one.name.rpartition(".")[2] == module and one.asname is not None:
                    yield one.asname


def _requirements(files: dict[str, bytes]) -> Iterator[str]:
    """What the package requires without extras, of ``requires.txt``, which sources of every age have."""
    path = next((path for path in files if path.endswith(".egg-info/requires.txt")), None)
    for line in files[path].decode("utf-8", "replace").splitlines() if path is not None else ():
        if line.startswith("["):
            return
        try:
            yield str(Requirement(line))
        except InvalidRequirement:
            continue
