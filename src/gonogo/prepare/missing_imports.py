"""Packages that a launch's program imports when it starts and that aren't installed: found before anything runs."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from gonogo.evidence.paths import is_file, is_folder, iter_parent_folders
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Script
from gonogo.prepare.environment_mismatch import distribution_of, is_project_module
from gonogo.prepare.packages.names import needs_cuda
from gonogo.prepare.project_requirements import COMMON_PACKAGES, ProjectPackages

STOOD_IN = frozenset({"vllm", "sglang", "flash_attn", "flash_attn_2_cuda", "torch_npu", "triton", "deepspeed", "ray"})
"""Modules that a rehearsal replaces by a stand-in, or whose absence it reports itself."""


def missing_imports(
    runs: Sequence[Run], packages: ProjectPackages, folder: Path, declared: Container[str] = ()
) -> list[str]:
    """Missing distributions, by the names that pip uses, in the order of the imports.

    Only imports count that run unconditionally when the program starts, in the program and in project modules that it
    imports that way; and only distributions that the project lists or that are common in training, because any other
    name may be a module that the launch's own Python finds.
    """
    return [
        name
        for name, module, listed, run in _imported_distributions(runs, packages, declared)
        if not _is_importable(module) and not _is_project_module(module, run, folder, deep=not listed)
    ]


def undeclared_imports(runs: Sequence[Run], packages: ProjectPackages, folder: Path) -> list[str]:
    """Distributions common in training that the program imports when it starts, and that the project doesn't list."""
    return [
        name
        for name, module, _, run in _imported_distributions(runs, packages, ())
        if name not in packages.lines and not needs_cuda(name) and name != "torch"
        if not _is_project_module(module, run, folder, deep=True)
    ]


def _imported_distributions(
    runs: Sequence[Run], packages: ProjectPackages, declared: Container[str]
) -> Iterator[tuple[str, str, bool, Run]]:
    """Distributions that are imported at the top, each with its module, whether it is listed, and the run."""
    seen: set[str] = set()
    for run in runs:
        if run.launch is None or _has_own_python(run):
            continue
        for module in _modules_imported_at_top(run.scripts):
            first = module.partition(".")[0]
            name = distribution_of(module)
            if name in seen or first in sys.stdlib_module_names or first in STOOD_IN:
                continue
            listed = name in packages.lines or name in declared
            if not (listed or name in packages.asked or name in COMMON_PACKAGES):
                continue
            if packages.own is not None and packages.own.name == name:
                continue
            seen.add(name)
            yield name, first, listed, run


def _has_own_python(run: Run) -> bool:
    """Whether the launch has its own Python or module path, whose packages are unknown."""
    assert run.launch is not None
    first = run.launch.words[0].value if run.launch.words else None
    if first is None or os.sep in first or first in ("conda", "mamba", "micromamba", "uv", "poetry", "pixi"):
        return True
    return any(name in run.launch.variables for name in ("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME"))


def _is_project_module(module: str, run: Run, folder: Path, *, deep: bool) -> bool:
    """Whether the project has the module, where Python searches for it or, if ``deep``, anywhere in the project."""
    assert run.launch is not None
    *_, top = iter_parent_folders(folder)
    scripts = (Path(os.path.abspath(one.source.path)).parent for one in run.scripts)
    for place in dict.fromkeys((folder, run.launch.cwd, top, top / "src", *scripts)):
        if is_file(place / f"{module}.py") or is_folder(place / module):
            return True
    return deep and is_project_module(module, folder)


def _is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):
        return True


def _modules_imported_at_top(scripts: Sequence[Script]) -> Iterator[str]:
    """Modules that the first script imports at its top level, followed through the project's own modules."""
    waiting = list(scripts[:1])
    seen = set(waiting)
    by_path_end = _scripts_by_path_suffix(scripts)
    while waiting:
        script = waiting.pop(0)
        for node in script.tree.body if script.tree is not None else ():
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                own = by_path_end.get(name.replace(".", "/"))
                if own is None:
                    yield name
                elif own not in seen:
                    seen.add(own)
                    waiting.append(own)


def _scripts_by_path_suffix(scripts: Sequence[Script]) -> dict[str, Script]:
    """The first script for each suffix of its path without extension: ``a/b/c``, ``b/c``, ``c``."""
    found: dict[str, Script] = {}
    for script in scripts:
        parts = script.source.path.removesuffix(".py").removesuffix("/__init__").split("/")
        for start in range(len(parts)):
            found.setdefault("/".join(parts[start:]), script)
    return found
