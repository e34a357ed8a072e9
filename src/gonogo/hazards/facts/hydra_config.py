"""The config that ``hydra.main`` composes for a script: its folder, and what the files there name."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

from gonogo.evidence.paths import contents, is_file, is_folder
from gonogo.evidence.script.script import Script

_CONFIG_SUFFIXES = (".yaml", ".yml")
_MAX_FILES = 2000


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
    """Whether no config below a folder, no file's name and no folder's name has a word; False if not all was read."""
    word = re.compile(rf"(?<![\w]){re.escape(name)}(?![\w])")
    seen = 0
    for path in sorted(folder.rglob("*")):
        seen += 1
        if seen > _MAX_FILES or word.search(path.name):
            return False
        if is_folder(path):
            continue
        try:
            text = contents(path).decode("utf-8", "replace") if path.suffix in _CONFIG_SUFFIXES else ""
        except OSError:
            return False
        if word.search(text):
            return False
    return True
