"""The project's own package, as ``pip install -e . --no-deps`` would install it; read, never built.

``setup.py`` is not run, since it may delete, download or compile anything: only its lists are read.
"""

from __future__ import annotations

import ast
import configparser
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.paths import exists, is_file, iter_parent_folders

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_REQUIREMENTS_FILE_PATTERN = re.compile(r"[\w./-]*\.(?:txt|in)")
CONSOLE_SCRIPT_PATTERN = re.compile(r"\s*([\w.-]+)\s*=\s*([\w.]+):([\w.]+)\s*")
_VERSION_PATTERN = re.compile(r"^__version__\s*=\s*[\"']([^\"'\n]+)[\"']", re.MULTILINE)
_MAX_DEPTH = 6
NON_PACKAGE_FOLDERS = frozenset(
    {"tests", "test", "docs", "examples", "scripts", "benchmarks", "tools", "build", "dist"}
)


class ProjectPackage(msgspec.Struct, frozen=True):
    """The user's own project as a package that can be installed from its folder."""

    file: Path
    name: str
    """Canonical; empty if the project's file doesn't state it."""
    version: str
    source: Path
    """The folder that an editable install adds to ``sys.path``."""
    requires: tuple[str, ...]
    files: tuple[Path, ...]
    """Requirements files that the project's file reads."""
    scripts: dict[str, str]
    """Console scripts by name, each as ``module:function``."""


def project_package(folder: Path) -> ProjectPackage | None:
    """The package that a folder's pyproject.toml, setup.cfg or setup.py defines; None if they define none."""
    setup, project = folder / "setup.py", folder / "pyproject.toml"
    pyproject = _read_pyproject(project) if is_file(project) else None
    by_setup = _read_setup_files(setup) if is_file(setup) else None
    by_config = _parse_setup_cfg(folder / "setup.cfg") if is_file(folder / "setup.cfg") else None
    if pyproject is None and by_setup is None and by_config is None:
        return None
    both: dict[str, Any] = {}
    for source_of in (by_setup, by_config, pyproject):  # later ones take precedence, as in setuptools
        both.update({key: value for key, value in (source_of or {}).items() if value})
    name = canonical_package_name(both.get("name") or "")
    source = _source_folder(folder, name, both.get("where") or "")
    if source is None:
        return None
    return ProjectPackage(
        file=project if pyproject is not None else setup if by_setup is not None else folder / "setup.cfg",
        name=name,
        version=both.get("version") or _version_from_module(source, name),
        source=source,
        requires=tuple(text for text in both.get("requires", ()) if _requirement_applies(text)),
        files=tuple(folder / one for one in both.get("files", ()) if is_file(folder / one)),
        scripts=both.get("scripts") or {},
    )


def _requirement_applies(text: str) -> bool:
    """Whether a text is a requirement whose marker applies to this machine."""
    try:
        marker = Requirement(text).marker
    except InvalidRequirement:
        return False
    return marker is None or marker.evaluate({"extra": ""})


def _source_folder(folder: Path, name: str, package_dir: str) -> Path | None:
    """The folder that contains its modules: the stated one, ``src``, or the project's folder."""
    if package_dir and exists(folder / package_dir):
        return folder / package_dir
    module = name.replace("-", "_")
    for place in (folder / "src", folder):
        found = python_packages_in_folder(place)
        if module in {one.lower() for one in found} or (found - NON_PACKAGE_FOLDERS and place != folder):
            return place
        if module and any(is_file(one) for one in (place / module).glob("*.py")):  # a namespace package
            return place
    return folder if python_packages_in_folder(folder) - NON_PACKAGE_FOLDERS else None


def python_packages_in_folder(folder: Path) -> set[str]:
    """The names of the Python packages (folders with ``__init__.py``) directly in a folder."""
    try:
        return {one.name for one in folder.iterdir() if is_file(one / "__init__.py")}
    except OSError:
        return set()


def _version_from_module(source: Path, name: str) -> str:
    """The ``__version__`` in the package's own source; empty if there is none."""
    module = next((one for one in python_packages_in_folder(source) if one.lower() == name.replace("-", "_")), None)
    for file in ("__init__.py", "version.py") if module is not None else ():
        try:
            text = (source / str(module) / file).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if match := _VERSION_PATTERN.search(text):
            return match[1]
    return ""


# pyproject.toml


def _read_pyproject(path: Path) -> dict[str, Any] | None:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    project, tool = _as_mapping(content.get("project")), _as_mapping(content.get("tool"))
    poetry, setuptools = _as_mapping(tool.get("poetry")), _as_mapping(tool.get("setuptools"))
    if not (project or poetry or setuptools):
        return None
    dynamic_table = _as_mapping(setuptools.get("dynamic"))
    dynamic = _as_mapping(dynamic_table.get("dependencies")).get("file") or []
    packages = setuptools.get("packages")
    where = _as_mapping(_as_mapping(packages).get("find") if isinstance(packages, dict) else {}).get("where") or []
    where = where or [value for key, value in _as_mapping(setuptools.get("package-dir")).items() if key == ""]
    scripts = project.get("scripts") or poetry.get("scripts") or {}
    return {
        "name": project.get("name") or poetry.get("name") or "",
        "version": project.get("version")
        or poetry.get("version")
        or _version_file_text(path.parent, _as_mapping(dynamic_table.get("version")).get("file")),
        "requires": [text for text in project.get("dependencies") or [] if isinstance(text, str)],
        "files": [dynamic] if isinstance(dynamic, str) else [one for one in dynamic if isinstance(one, str)],
        "where": next((one for one in where if isinstance(one, str)), ""),
        "scripts": {key: value for key, value in scripts.items() if isinstance(value, str)},
    }


def _version_file_text(folder: Path, name: Any) -> str:
    """The content of a file that contains only a version, otherwise empty."""
    try:
        text = (folder / name).read_text(encoding="utf-8").strip() if isinstance(name, str) else ""
    except (OSError, UnicodeDecodeError):
        return ""
    return text if re.fullmatch(r"[\w.+!-]+", text) else ""


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# setup.cfg


def _parse_setup_cfg(path: Path) -> dict[str, Any] | None:
    """The settings for setuptools; None if the file is only for other tools."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, configparser.Error):
        return None
    if not (parser.has_section("metadata") or parser.has_section("options")):
        return None

    def setup_cfg_list(section: str, key: str) -> list[str]:
        """The lines of a list-valued option."""
        return [line.strip() for line in parser.get(section, key, fallback="").splitlines() if line.strip()]

    requires = setup_cfg_list("options", "install_requires")
    named = [line.removeprefix("file:").split(",") for line in requires if line.startswith("file:")]
    folders = (line.partition("=") for line in setup_cfg_list("options", "package_dir"))
    where = [
        *setup_cfg_list("options.packages.find", "where"),
        *(value.strip() for key, _, value in folders if not key.strip()),
    ]
    version = parser.get("metadata", "version", fallback="").strip()
    found = [
        CONSOLE_SCRIPT_PATTERN.fullmatch(line) for line in setup_cfg_list("options.entry_points", "console_scripts")
    ]
    return {
        "name": parser.get("metadata", "name", fallback="").strip(),
        "version": "" if version.startswith(("attr:", "file:")) else version,
        "requires": [line for line in requires if not line.startswith("file:")],
        "files": [name.strip() for names in named for name in names],
        "where": next(iter(where), ""),
        "scripts": {each[1]: f"{each[2]}:{each[3]}" for each in found if each},
    }


# setup.py


def _read_setup_files(path: Path) -> dict[str, Any] | None:
    try:
        return _parse_setup_py(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _parse_setup_py(text: str) -> dict[str, Any] | None:
    tree = ast.parse(text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    call = next((node for node in calls if _called_name(node) == "setup"), None)
    if call is None:
        return None
    lists = _StringEvaluator(tree)
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    texts = list(lists.strings_in(given.get("install_requires")))
    scripts = [CONSOLE_SCRIPT_PATTERN.fullmatch(text) for text in lists.strings_in(given.get("entry_points"))]
    folders = given.get("package_dir")
    where = [value for key, value in zip(folders.keys, folders.values, strict=True)
             if isinstance(key, ast.Constant) and key.value == ""] if isinstance(folders, ast.Dict) else []  # fmt: skip
    return {
        "name": lists.first_string(given.get("name")),
        "version": lists.first_string(given.get("version")),
        "requires": [text for text in texts if not _REQUIREMENTS_FILE_PATTERN.fullmatch(text)],
        "files": [text for text in texts if _REQUIREMENTS_FILE_PATTERN.fullmatch(text)],
        "where": lists.first_string(where[0]) if where else "",
        "scripts": {found[1]: f"{found[2]}:{found[3]}" for found in scripts if found},
    }


class SetupRequirements(msgspec.Struct, frozen=True):
    """The requirements of a ``setup.py``."""

    requires: tuple[str, ...]
    files: tuple[str, ...]
    """Requirements files that it reads."""


def setup_requirements(text: str) -> SetupRequirements | None:
    """The requirements in the text of a ``setup.py``; None if it doesn't call ``setup``."""
    try:
        setup = _parse_setup_py(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return SetupRequirements(tuple(setup["requires"]), tuple(setup["files"])) if setup is not None else None


def _called_name(node: ast.Call) -> str:
    """The last part of a callee's name: ``setup`` for ``setuptools.setup(…)``."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


class _StringEvaluator:
    """Evaluates the string values of an expression in a ``setup.py``, as far as possible without running it."""

    def __init__(self, tree: ast.Module) -> None:
        self._bound: dict[str, list[ast.expr]] = {}
        self._functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self._constants = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in (one for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)):
                    self._bound.setdefault(name.id, []).append(node.value)

    def first_string(self, node: ast.expr | None) -> str:
        """The first string that an expression gives; empty if there is none."""
        return next(self.strings_in(node), "")

    def strings_in(self, node: ast.expr | None, depth: int = 0) -> Iterator[str]:
        """All strings that an expression gives, as far as they can be found without running it."""
        if node is None or depth > _MAX_DEPTH:
            return
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node.value
        elif isinstance(node, ast.Name):
            for value in self._bound.get(node.id, ()):
                yield from self.strings_in(value, depth + 1)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield from self._requirements_for_key(node.slice.value)
        elif isinstance(node, ast.Call):
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                yield from self.strings_in(argument, depth + 1)
            if isinstance(node.func, ast.Attribute):
                yield from self.strings_in(node.func.value, depth + 1)
            function = self._functions.get(_called_name(node))
            for part in ast.walk(function) if function is not None else ():
                if (
                    isinstance(part, ast.Constant)
                    and isinstance(part.value, str)
                    and _REQUIREMENTS_FILE_PATTERN.fullmatch(part.value)
                ):
                    yield part.value
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    yield from self.strings_in(child, depth + 1)

    def _requirements_for_key(self, key: Any) -> Iterator[str]:
        """The requirement that ``deps["accelerate"]`` refers to, from any string constant of the file."""
        for text in self._constants:
            match = re.match(r"[\w.-]+", text)
            if (
                isinstance(key, str)
                and match
                and canonical_package_name(match[0]) == canonical_package_name(key)
                and text != key
            ):
                yield text
                return
        if isinstance(key, str):
            yield key


def project_console_script(name: str, folder: Path) -> str | None:
    """``module:function`` of a console script of the project's own package, in a folder or one above it."""
    if os.sep in name:
        return None
    owned = (project_package(place) for place in iter_parent_folders(folder))
    return next((one.scripts[name] for one in owned if one is not None and name in one.scripts), None)
