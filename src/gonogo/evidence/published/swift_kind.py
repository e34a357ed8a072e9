"""The ``--model_type`` and ``--template`` that ms-swift needs if it can't infer them from a model's folder.

ms-swift takes the model type that lists the folder's name, else the one in its own ``args.json``, else the only type
for the first of config.json's ``architectures``; then that type's only template. If several remain, it refuses to
start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.paths import exists, expand_user
from gonogo.evidence.tables import TABLES

_CLASSIFIER_SUFFIX = "ForSequenceClassification"


class SwiftModelOptions(msgspec.Struct, frozen=True):
    """The ``--model_type`` and ``--template`` to pass to ms-swift, each empty if ms-swift infers it."""

    kind: str = ""
    template: str = ""
    kinds: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()


class _ModelGroup(msgspec.Struct, frozen=True):
    """Models that ms-swift lists together, with one model type and template."""

    kind: str
    template: str | None
    names: tuple[str, ...]


def infer_swift_options(name: str, folder: Path, model_class: str | None = None) -> SwiftModelOptions:
    """The options that ms-swift needs for a model, given as the user names it.

    ``model_class`` is the class of the loaded model, for a config.json that states no architecture.
    """
    own = _base_name(str(folder) if exists(expand_user(Path(name))) else name)
    if exists(folder / "args.json") or any(own in models.names for models in _load_models()):
        return SwiftModelOptions()
    config = _read_object(folder / "config.json")
    architectures = config.get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) and architectures else None
    kind_of = _load_table()["kinds"]
    of = _groups_of_architecture(architecture or model_class)
    if not of and architecture is not None and architecture.endswith(_CLASSIFIER_SUFFIX):
        # ms-swift has no type for a classifier and drops its chat format: use that of the causal LM.
        of, architecture = _groups_of_architecture(architecture.removesuffix(_CLASSIFIER_SUFFIX) + "ForCausalLM"), None
    if not of:
        return SwiftModelOptions()
    began = config.get("_name_or_path")
    names = [own, _base_name(began)] if isinstance(began, str) else [own]
    chat = _chat_template(folder)
    best = max(of, key=lambda models: _similarity(models, of, names, chat))
    kinds = tuple(dict.fromkeys(models.kind for models in of))
    templates = tuple(
        dict.fromkeys(models.template for models in of if models.kind == best.kind and models.template is not None)
    )
    settled = kind_of[best.kind]["template"] is not None or len(templates) == 1
    return SwiftModelOptions(
        kind="" if len(kinds) == 1 and architecture is not None else best.kind,
        template="" if settled else best.template or "",
        kinds=kinds,
        templates=() if settled else templates,
    )


def _groups_of_architecture(name: str | None) -> list[_ModelGroup]:
    return [models for models in _load_models() if name in _load_table()["kinds"][models.kind]["architectures"]]


@cache
def _load_table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads((TABLES / "ms_swift_types.json").read_bytes())
    return table


@cache
def _load_models() -> tuple[_ModelGroup, ...]:
    return tuple(_parse_table())


def _parse_table() -> Iterator[_ModelGroup]:
    for kind, row in _load_table()["kinds"].items():
        for template, names in row["groups"]:
            yield _ModelGroup(kind, template or row["template"], tuple(names))


def _base_name(name: str) -> str:
    """The part of a path or name that ms-swift compares; downloads from ModelScope have ``___`` instead of a dot."""
    return name.rstrip("/").rsplit("/", 1)[-1].replace("___", ".").lower()


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _chat_template(folder: Path) -> str:
    try:
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return str(_read_object(folder / "tokenizer_config.json").get("chat_template") or "")


def _common_prefix_length(first: str, other: str) -> int:
    """Length of the common prefix."""
    return next(
        (at for at, (a, b) in enumerate(zip(first, other, strict=False)) if a != b), min(len(first), len(other))
    )


def _similarity(
    models: _ModelGroup, candidates: list[_ModelGroup], names: list[str], chat: str
) -> tuple[int, bool, int, int]:
    """How well a group fits: common prefix with the folder's name, and matches of its template in the chat template.

    Of the template, the words of the turns count first, then the system prompt. In a tie, the most common type wins.
    """
    alike = max((_common_prefix_length(mine, one) for mine in names for one in models.names), default=0)
    words, system = _load_table()["turns"].get(models.template, ([], ""))
    count = sum(len(one.names) for one in candidates if (one.kind, one.template) == (models.kind, models.template))
    return (
        alike if alike > 3 else 0,  # shorter prefixes may be coincidence, as in my-model
        bool(words) and all(word in chat for word in words),
        len(system) if len(system) > 30 and system in chat else 0,  # "You are a helpful assistant." is shared by many
        count,
    )
