"""Finds layers that a module builds in ``__init__`` and that the project never uses again."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import ClassInfo, Script

_LAYER_CLASSES = tuple(
    f"torch.nn.{name}"
    for name in ("Linear", "Conv1d", "Conv2d", "Conv3d", "LSTM", "GRU", "LayerNorm", "MultiheadAttention", "Parameter")
)

_WORD_PATTERN = re.compile(rb"[A-Za-z0-9_]+")


def unused_layers(script: Script, run: Run, names: set[str]) -> Iterator[tuple[ClassInfo, str, ast.Assign]]:
    """Unused layers of the classes in ``names``, each with the statement that builds it."""
    classes = {name.rpartition(".")[2] for name in names}
    scripts = tuple({id(one): one for one in (script, *script.imported, *run.scripts)}.values())
    yield from (found for found in _all_unused_layers(scripts) if found[0].name in classes)


@lru_cache(maxsize=8)
def _all_unused_layers(scripts: tuple[Script, ...]) -> tuple[tuple[ClassInfo, str, ast.Assign], ...]:
    return tuple(
        (owner, layer, statement)
        for one in scripts
        for owner in one.classes
        if "forward" in owner.methods and owner.bases == ("torch.nn.Module",) and "__init__" in owner.methods
        for statement in owner.methods["__init__"].body
        if isinstance(statement, ast.Assign)
        and (layer := _layer_attribute_name(one, statement)) is not None
        and _count_mentions(scripts, layer) == 1
    )


def _layer_attribute_name(script: Script, statement: ast.Assign) -> str | None:
    """``x`` if the statement is like ``self.x = nn.Linear(…)``, else None."""
    if len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Attribute) or not isinstance(value, ast.Call):
        return None
    return target.attr if script.qualified(value.func) in _LAYER_CLASSES else None


def _count_mentions(scripts: tuple[Script, ...], name: str) -> int:
    """How often the name occurs in the project as a word."""
    return sum(script.cached_result(_word_counts)[name.encode()] for script in scripts)


def _word_counts(script: Script) -> Counter[bytes]:
    return Counter(_WORD_PATTERN.findall(script.source.data))
