"""The ``sys.path`` of a launch, and the project's modules that are not on it."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from gonogo.evidence.config.accelerate import AccelerateConfig
from gonogo.evidence.environment.own_package import project_package
from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.paths import is_file, iter_parent_folders
from gonogo.evidence.run import ImportOutsideSysPath
from gonogo.evidence.script.identifiers import identifiers_in, last_name
from gonogo.evidence.script.module_search import PythonPath
from gonogo.evidence.script.project import Project
from gonogo.evidence.script.script import Script

_SUBMODULE_PATH_PATTERN = re.compile(r"^\s*path\s*=\s*(\S+)\s*$", re.MULTILINE)
_OTHER_DISTRIBUTED_MODES = ("multi_gpu", "tpu", "use_fsdp", "use_megatron_lm", "cpu")
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_EXIT_CALLS = frozenset({"exit", "_exit", "abort"})
_PROJECT_ROOT_MARKERS = (".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")


def python_path_of(launch: Launch, program: Path | None, accelerate: AccelerateConfig | None = None) -> PythonPath:
    """The project's part of a launch's ``sys.path``: by Python's own rules, and with what the launcher adds.

    ``accelerate``: the config that ``accelerate launch`` reads, if it is available.
    """
    cwd = os.path.realpath(launch.copy_source(launch.cwd))
    first = cwd if launch.program_kind != "script" or program is None else os.path.dirname(os.path.realpath(program))
    given = [Path(os.path.realpath(os.path.join(cwd, os.path.expanduser(each)))) for each in launch.python_path]
    entries = [os.path.realpath(launch.copy_source(each)) for each in given]
    if launch.launcher == "deepspeed" and launch.nodes.number not in (None, 1):
        entries.append(cwd)  # its multi-node runner exports the folder to the other nodes
    with_deepspeed = _starts_deepspeed(launch, accelerate) if launch.launcher == "accelerate" else False
    if with_deepspeed:
        entries.append(cwd)  # accelerate's prepare_deepspeed_cmd_env
    owned = (project_package(folder) for folder in _ancestor_folders(launch, program))
    installed = tuple(dict.fromkeys(os.path.realpath(each.source) for each in owned if each is not None))
    complete = launch.python_path_complete and with_deepspeed is not None
    return PythonPath(tuple(dict.fromkeys((first, *entries))), installed, cwd, complete)


def _starts_deepspeed(launch: Launch, accelerate: AccelerateConfig | None) -> bool | None:
    """Whether ``accelerate launch`` starts the program with DeepSpeed; None if a config that isn't here sets it."""
    if "use_deepspeed" in launch.launcher_options:
        return True
    if any(name in launch.launcher_options for name in _OTHER_DISTRIBUTED_MODES):
        return False  # the config's distributed_type only applies if the command line sets none
    return accelerate.enables_deepspeed if accelerate is not None else None


def project_root(launch: Launch, program: Path) -> Path:
    """The folder whose files are the project's own."""
    for folder in iter_parent_folders(program.parent):
        if any(os.path.exists(folder / name) for name in _PROJECT_ROOT_MARKERS):
            return folder
    shared = os.path.commonpath([os.path.realpath(launch.cwd), os.path.realpath(program.parent)])
    return Path(shared) if shared not in ("/", os.path.expanduser("~")) else program.parent


def _ancestor_folders(launch: Launch, program: Path | None) -> Iterator[Path]:
    starts = [launch.cwd, *([program.parent] if program is not None else [])]
    yield from dict.fromkeys(folder for start in starts for folder in iter_parent_folders(Path(os.path.abspath(start))))


def module_file(launch: Launch, name: str) -> Path | None:
    """The file that ``-m NAME`` runs."""
    path = python_path_of(launch, None)
    parts = name.split(".")
    for folder in (*path.folders, *path.installed, *(() if path.installed else (os.path.join(path.cwd, "src"),))):
        base = Path(folder, *parts)
        for file in (base.with_name(f"{base.name}.py"), base / "__main__.py"):
            if is_file(file):
                return file
    return None


def is_installed(module_name: str) -> bool:
    """Whether this interpreter's site-packages or standard library has a module or package of that name."""
    folders = [folder for folder in sys.path if os.path.basename(folder) in ("site-packages", "dist-packages")]
    return module_name in sys.stdlib_module_names or PathFinder.find_spec(module_name, folders) is not None


def imports_not_on_path(
    launch: Launch, project: Project, scripts: Sequence[Script]
) -> tuple[ImportOutsideSysPath, ...]:
    """The imports of modules that exist in the project but are not on the launch's ``sys.path``."""
    path = project.search.path
    if path is None or launch.python_path_unread:
        return ()
    found: dict[str, ImportOutsideSysPath] = {}
    places = list(dict.fromkeys((path.cwd, project.root)))
    for script in scripts:
        if script.tree is None:
            continue
        for node, name in _absolute_imports(script):
            top = name.partition(".")[0]
            if (top in found and not found[top].optional) or project.search.has_module(top, "") or is_installed(top):
                continue
            folder = next((place for place in places if _has_module(place, top)), None)
            if folder is not None:
                settled = (
                    "PYTHONPATH" not in os.environ
                    and path.complete
                    and not path.installed
                    and not project.search.unread
                )
                own = script is scripts[0] and isinstance(script.index.parents.get(node), ast.Module)
                optional = _handles_import_error(script, node)
                found[top] = ImportOutsideSysPath(top, folder, script, node, surely=settled and own, optional=optional)
    return tuple(found.values())


def submodules_not_checked_out(project: Project, scripts: Sequence[Script]) -> dict[str, tuple[Script, ast.stmt]]:
    """The repository's git submodules that a program imports and whose folders are empty, with an import of each."""
    listing = Path(project.root, ".gitmodules")
    try:
        paths = _SUBMODULE_PATH_PATTERN.findall(listing.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return {}
    empty = {os.path.basename(path).replace("-", "_"): path for path in paths if _is_empty(Path(project.root, path))}
    found: dict[str, tuple[Script, ast.stmt]] = {}
    for script in scripts if empty else ():
        if script.tree is None:
            continue
        for node, name in _absolute_imports(script):
            top = name.partition(".")[0]
            if top in empty and not is_installed(top) and not _handles_import_error(script, node):
                found.setdefault(empty[top], (script, node))
    return found


def _is_empty(folder: Path) -> bool:
    try:
        return not any(folder.iterdir())
    except OSError:
        return True


def _handles_import_error(script: Script, node: ast.stmt) -> bool:
    """Whether an import is in a ``try`` whose handler continues without the module."""
    inner: ast.AST = node
    while (outer := script.index.parents.get(inner)) is not None:
        if isinstance(outer, ast.Try) and inner in outer.body:
            caught = (one for one in outer.handlers if one.type is None or _IMPORT_ERRORS & {*identifiers_in(one.type)})
            if (handler := next(caught, None)) is not None and not _handler_exits(handler):
                return True
        inner = outer
    return False


def _handler_exits(handler: ast.ExceptHandler) -> bool:
    return any(
        isinstance(part, ast.Raise) or (isinstance(part, ast.Call) and last_name(part) in _EXIT_CALLS)
        for part in ast.walk(handler)
    )


def _absolute_imports(script: Script) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    statements = (*script.index.by_type.get(ast.Import, ()), *script.index.by_type.get(ast.ImportFrom, ()))
    for node in sorted(statements, key=lambda each: each.lineno):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif node.module and not node.level:
            yield node, node.module


def _has_module(folder: str, module_name: str) -> bool:
    base = os.path.join(folder, module_name)
    if os.path.isfile(f"{base}.py") or os.path.isfile(os.path.join(base, "__init__.py")):
        return True
    try:
        return os.path.isdir(base) and any(name.endswith(".py") for name in os.listdir(base))
    except OSError:
        return False
