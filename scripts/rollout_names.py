"""What trainers import from vLLM and SGLang, out of their sources, for tests/virtual/test_rollout_names.py.

    python scripts/rollout_names.py trl-1.16.0=FOLDER verl-0.7.1=FOLDER … > tests/virtual/rollout_names.json

A folder holds an unpacked wheel or a checkout; nothing of it is run. A name is *asked for* where the program can do
without it (a ``try`` is around it), else *needed*. Tests, examples and documents of the trainers are left out.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

ENGINES = ("vllm", "sglang")
LEFT_OUT = {"tests", "test", "docs", "examples", "example", "benchmark", "benchmarks", "research", "3rdparty"}


def main() -> None:
    """Print the names."""
    found: dict[str, dict[str, list[str]]] = {}
    for told in sys.argv[1:]:
        trainer, _, folder = told.partition("=")
        names: dict[str, list[str]] = {"needed": [], "asked for": []}
        for file in sorted(Path(folder).rglob("*.py")):
            if LEFT_OUT.isdisjoint(file.relative_to(folder).parts[:-1]):
                for name, needed in names_of(file):
                    names["needed" if needed else "asked for"].append(name)
        needed = sorted(set(names["needed"]))
        found[trainer] = {"needed": needed, "asked for": sorted(set(names["asked for"]) - set(needed))}
    print(json.dumps(found, indent=1))


def names_of(file: Path) -> Iterator[tuple[str, bool]]:
    """Each ``module:name`` that a file imports, or reads of a module that it imports, and whether it needs it."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    bound: dict[str, str] = {}
    places = list(_places(tree, needed=True))
    for node, needed in places:
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _of_engine(node.module):
            for alias in node.names:
                yield f"{node.module}:{alias.name}", needed
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _of_engine(alias.name):
                    bound[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else ""
                    yield f"{alias.name}:", needed
    for node, needed in places:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            path = _path(node)
            root = path.partition(".")[0]
            if root in bound and "." in path:
                module = bound[root] or root
                yield f"{module}:{path.partition('.')[2]}", needed


def _of_engine(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in ENGINES


def _path(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        inner = _path(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


def _places(node: ast.AST, *, needed: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        inside = needed
        if isinstance(child, ast.Try):
            for part in child.body:
                yield part, False
                yield from _places(part, needed=False)
            for rest in [*child.handlers, *child.orelse, *child.finalbody]:
                yield rest, needed
                yield from _places(rest, needed=needed)
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child, inside
        if isinstance(child, ast.Attribute):  # the longest path alone
            inner = child.value
            while isinstance(inner, ast.Attribute):
                inner = inner.value
            yield from _places(inner, needed=inside)
            continue
        yield from _places(child, needed=inside)


if __name__ == "__main__":
    main()
