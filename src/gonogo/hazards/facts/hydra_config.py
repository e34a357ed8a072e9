"""The config that ``hydra.main`` composes for a script: its folder, and what the files there name."""

from __future__ import annotations

import ast
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from gonogo.evidence.paths import is_file, is_folder, read_bytes
from gonogo.evidence.script.script import Script

_CONFIG_SUFFIXES = (".yaml", ".yml")
_MAX_FILES = 2000
_WORD_PATTERN = re.compile(r"\w+")


def hydra_folder(script: Script) -> Path | None:
    """The folder of the configs of a script whose one ``hydra.main`` names it and a file there; None if unknown."""
    calls = [call for call in script.calls("hydra.main") if _decorates(script, call.node)]
    if len(calls) != 1:
        return None
    folder, name = calls[0].keyword("config_path").string, calls[0].keyword("config_name").string
    if not folder or not name or "://" in folder:
        return None
    place = Path(os.path.normpath(Path(os.path.abspath(script.source.path)).parent / folder))
    files = [place / name, *(place / f"{name}{suffix}" for suffix in _CONFIG_SUFFIXES)]
    return place if any(is_file(one) for one in files if one.suffix in _CONFIG_SUFFIXES) else None


def _decorates(script: Script, node: ast.Call) -> bool:
    functions = [one for one in ast.walk(script.tree) if isinstance(one, ast.FunctionDef)] if script.tree else []
    return any(node in function.decorator_list for function in functions)


def names_nowhere(folder: Path, name: str) -> bool:
    """Whether no key of a config below a folder, no file's name and no folder's name is a word; False if unknown."""
    try:
        return name not in _names_below(folder)
    except (OSError, UnicodeDecodeError, ValueError, RecursionError):
        return False


@lru_cache(maxsize=4)
def _names_below(folder: Path) -> frozenset[str]:
    """Every word that the configs below a folder may put into the composed config. Raises if one can't be read."""
    found: set[str] = set()
    for number, path in enumerate(sorted(folder.rglob("*"))):
        if number > _MAX_FILES:
            raise ValueError(f"{folder}: too many files")
        found |= set(_WORD_PATTERN.findall(path.name))
        if path.suffix in _CONFIG_SUFFIXES and not is_folder(path):
            found |= _names_in(read_bytes(path).decode("utf-8"))
    return frozenset(found)


def _names_in(text: str) -> set[str]:
    """The words of a config's keys, of its list of defaults and of its package."""
    import yaml

    words = [line for line in text.splitlines() if "@package" in line]
    try:
        waiting: list[tuple[Any, bool]] = [(node, False) for node in yaml.compose_all(text, Loader=yaml.SafeLoader)]
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    while waiting:
        node, of_defaults = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                words.append(str(key.value))
                waiting.append((value, of_defaults or key.value == "defaults"))
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(one, of_defaults) for one in node.value]
        elif of_defaults and node is not None:
            words.append(str(node.value))
    return {word for line in words for word in _WORD_PATTERN.findall(line)}
