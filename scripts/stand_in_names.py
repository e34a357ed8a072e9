"""The names of a package, out of its sources, for a stand-in that implements only some of them (``names.json``).

    python scripts/stand_in_names.py triton=FOLDER > src/gonogo/virtual/stand_ins/with_triton/triton/names.json

FOLDER holds an unpacked wheel; nothing of it is run. All modules that have a public name of their own, or from which
one is imported: what each defines, and what it imports from the package's other modules.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

LEFT_OUT = {"test", "tests", "testing", "examples", "csrc"}
Names = dict[str, str]
"""Of each name of a module its kind, or ``module:name`` where it is imported."""


def main() -> None:
    """Print the table."""
    package, _, folder = sys.argv[1].partition("=")
    root = Path(folder)
    modules = {}
    for file in sorted((root / package).rglob("*.py")):
        if not LEFT_OUT.isdisjoint(file.relative_to(root).parts[:-1]):
            continue
        parts = file.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = names_of(file, name)
    for name in modules:
        modules[name] = with_stars(name, modules)
    version = re.search(r"__version__ = ['\"](.+)['\"]", (root / package / "__init__.py").read_text(encoding="utf-8"))
    used = {where.partition(":")[0] for names in modules.values() for where in names.values()}
    kept = {
        name: sorted_by_kind(names, modules)
        for name, names in modules.items()
        if name in used or not any(part.startswith("_") for part in name.split("."))
    }
    table = {"version": version[1] if version is not None else "", "modules": kept}
    print(json.dumps(table, separators=(",", ":")), end="")


def names_of(file: Path, module: str) -> Names:
    """What a module binds at its top, star imports as ``*`` with their module."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    names: Names = {}
    for node in _statements(ast.parse(file.read_bytes()).body):
        if isinstance(node, ast.ClassDef):
            names[node.name] = "classes"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names[node.name] = "functions"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {one.id: "values" for one in _targets(targets)}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                key = f"*{source}" if alias.name == "*" else alias.asname or alias.name
                if source.partition(".")[0] == module.partition(".")[0]:
                    names[key] = f"{source}:{alias.name}"
    return names


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those within ``if`` and ``try`` included, but not what only type checkers see."""
    for node in body:
        if (isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test)) or isinstance(node, ast.Try):
            yield from _statements([*node.body, *node.orelse])
        else:
            yield node


def _targets(targets: Iterable[ast.expr]) -> Iterator[ast.Name]:
    for one in targets:
        if isinstance(one, ast.Name):
            yield one
        elif isinstance(one, ast.Tuple):
            yield from _targets(one.elts)


def with_stars(module: str, modules: dict[str, Names]) -> Names:
    """A module's names with those of its star imports."""
    names = dict(modules[module])
    for key in [key for key in names if key.startswith("*")]:
        source = names.pop(key).partition(":")[0]
        for name in with_stars(source, modules) if source in modules else ():
            if not name.startswith("_"):
                names.setdefault(name, f"{source}:{name}")
    return names


def sorted_by_kind(names: Names, modules: dict[str, Names]) -> dict[str, list[str] | Names]:
    """The public names of a module by kind, and private ones that another module imports."""
    imported: Names = {}
    kinds: dict[str, list[str] | Names] = {}
    for name, kind in sorted(names.items()):
        if name.startswith("__"):
            continue
        if ":" in kind:
            source, _, attribute = kind.partition(":")
            imported[name] = f"{source}.{attribute}" if f"{source}.{attribute}" in modules else kind
        else:
            kinds.setdefault(kind, []).append(name)  # type: ignore[union-attr]
    return kinds | ({"imported": imported} if imported else {})


if __name__ == "__main__":
    main()
