"""Finds layers that a module builds in ``__init__`` and that the project never uses again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import ClassInfo, Script

_LAYER_CLASSES = tuple(
    f"torch.nn.{name}"
    for name in ("Linear", "Conv1d", "Conv2d", "Conv3d", "LSTM", "GRU", "LayerNorm", "MultiheadAttention", "Parameter")
)


def unused_layers(script: Script, run: Run, names: set[str]) -> Iterator[tuple[ClassInfo, str, ast.Assign]]:
    """Unused layers of the classes in ``names``, each with the statement that builds it."""
    scripts = tuple({id(one): one for one in (script, *script.imported, *run.scripts)}.values())
    for one in scripts:
        for owner in one.classes:
            made = owner.methods.get("__init__")
            if made is None or "forward" not in owner.methods or owner.bases != ("torch.nn.Module",):
                continue
            if not any(name.rpartition(".")[2] == owner.name for name in names):
                continue
            for statement in made.body:
                layer = _assigned_layer(one, statement)
                if layer is not None and isinstance(statement, ast.Assign) and _mentions(scripts, layer) == 1:
                    yield owner, layer, statement


def _assigned_layer(script: Script, statement: ast.stmt) -> str | None:
    """``x`` of ``self.x = nn.Linear(…)``."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Attribute) or not isinstance(value, ast.Call):
        return None
    return target.attr if script.qualified(value.func) in _LAYER_CLASSES else None


def _mentions(scripts: tuple[Script, ...], name: str) -> int:
    """How often the name occurs in the project as a word."""
    return sum(_count_word(script.source.data, name.encode()) for script in scripts)


def _count_word(data: bytes, word: bytes) -> int:
    found, at = 0, data.find(word)
    while at >= 0:
        before, after = data[at - 1 : at], data[at + len(word) : at + len(word) + 1]
        if not (before.isalnum() or before == b"_" or after.isalnum() or after == b"_"):
            found += 1
        at = data.find(word, at + 1)
    return found
