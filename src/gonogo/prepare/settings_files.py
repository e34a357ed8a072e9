"""TOML settings files of a launch: the model folders and data that they name."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gonogo.evidence.paths import is_file
from gonogo.evidence.run import Run
from gonogo.prepare.required_inputs import Kind, NamedInput, kind_of_option

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SETTINGS_SUFFIX = ".toml"
_MAX_BYTES = 1 << 20
_OF_A_MODEL_PATTERN = re.compile(
    r"(?:.*_)?(?:ckpt|checkpoint|diffusers|transformer|unet|dit|vae|text_encoder|clip|llm|t5|byt5|llama3)_(?:path|dir)$"
)
"""Settings with which programs name a model's folder or one of its parts."""
_MAX_NESTING = 2
"""A settings file may name another one that describes the data."""


def find_named_inputs(run: Run) -> Iterator[NamedInput]:
    """The inputs named in the TOML files among the words of a launch."""
    if run.launch is None:
        return
    seen: set[Path] = set()
    for word in run.launch.words:
        value = str(word.value or "").rpartition("=")[2]
        if value.endswith(_SETTINGS_SUFFIX):
            yield from _inputs_named_in_file(run.launch.cwd / value, run.launch.cwd, seen, _MAX_NESTING)


def _inputs_named_in_file(path: Path, folder: Path, seen: set[Path], max_depth: int) -> Iterator[NamedInput]:
    if path in seen or not max_depth or not is_file(path) or path.stat().st_size > _MAX_BYTES:
        return
    seen.add(path)
    try:
        text = path.read_text(encoding="utf-8")
        settings = tomllib.loads(text)
    except (OSError, ValueError):
        return
    for key, value in _strings_with_keys(settings, ""):
        if value.endswith(_SETTINGS_SUFFIX):
            yield from _inputs_named_in_file(folder / value, folder, seen, max_depth - 1)
            continue
        kind = _kind_of_key(key)
        if kind is not None and ("/" in value or "." in value):
            line = 1 + text[: max(0, text.find(value))].count("\n")
            yield NamedInput(kind, value, f"{_display_path(path, folder)}:{line}", key.rpartition(".")[2])


def _kind_of_key(key: str) -> Kind | None:
    return "model" if _OF_A_MODEL_PATTERN.match(key.rpartition(".")[2].lower()) else kind_of_option(key)


def _strings_with_keys(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Each string with its key, which is prefixed by the enclosing keys."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _strings_with_keys(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings_with_keys(inner, key)
    elif isinstance(value, str) and value and "\n" not in value:
        yield key, value


def _display_path(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
