#!/usr/bin/env python3
"""Which keys transformers writes into each architecture's config.json beside those that differ between its models.

``save_pretrained`` writes every key of a configuration's own class, those that equal the default too: code that is
published reads them (``config.attention_dropout``), and a release that takes attributes from the file alone has no
others. Reads the defaults off releases of transformers, the first that has the architecture, and writes
``src/gonogo/evidence/tables/published/config_keys.json``.

    pip download --no-deps transformers==4.45.2 -d wheels; pip download --no-deps transformers==4.57.3 -d wheels
    python scripts/config_keys.py wheels/*.whl
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

_TABLES = Path(__file__).resolve().parent.parent / "src/gonogo/evidence/tables/published"
_SOURCE = "https://github.com/huggingface/transformers/blob/v{version}/src/{path}"
_NOT_WRITTEN = frozenset({"return_dict", "output_hidden_states", "output_attentions", "torchscript"})
_CHOSEN = frozenset({"bos_token_id", "eos_token_id", "pad_token_id", "vocab_size"})
"""What differs between the models of one architecture: a default says nothing of a model."""


def defaults_of(tree: ast.Module, model_type: str) -> dict[str, Any] | None:
    """The defaults of the class of that ``model_type`` that are JSON; None where the file has no such class.

    Parts (a vision tower) come before the whole, and some have its ``model_type``.
    """
    for node in reversed(tree.body):
        if not isinstance(node, ast.ClassDef):
            continue
        said = [one.value for one in node.body if isinstance(one, ast.Assign) and _is(one.targets[0], "model_type")]
        init = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
        if init is None or not said or ast.literal_eval(said[0]) != model_type:
            continue
        names = init.args.args[len(init.args.args) - len(init.args.defaults) :]
        kept = _kept_as_they_are(init)
        found = {}
        for name, default in zip(names, init.args.defaults, strict=True):
            if name.arg not in kept or name.arg.endswith("_config") or name.arg in _NOT_WRITTEN | _CHOSEN:
                continue
            try:
                value = ast.literal_eval(default)
            except ValueError:
                continue
            if value is None or isinstance(value, bool | int | float | str):
                found[name.arg] = value
        return found
    return None


def _kept_as_they_are(init: ast.FunctionDef) -> set[str]:
    """The arguments that become attributes of their names, or that the base class is handed."""
    kept = set()
    for node in ast.walk(init):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            target = node.targets[0]
            if isinstance(target, ast.Attribute) and target.attr == node.value.id and _is(target.value, "self"):
                kept.add(node.value.id)
        elif isinstance(node, ast.keyword) and isinstance(node.value, ast.Name) and node.arg == node.value.id:
            kept.add(node.value.id)
    return kept


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def main(wheels: list[str]) -> None:
    """Write the table."""
    models = json.loads((_TABLES / "models.json").read_text(encoding="utf-8"))["models"]
    wanted = {row["config"]["model_type"] for row in models if "model_type" in row["config"]}
    found: dict[str, dict[str, Any]] = {}
    for wheel in wheels:
        version = Path(wheel).name.split("-")[1]
        with zipfile.ZipFile(wheel) as archive:
            for path in sorted(archive.namelist()):
                if "/configuration_" not in path or "/models/" not in path:
                    continue
                tree = ast.parse(archive.read(path))
                for model_type in wanted - found.keys():
                    keys = defaults_of(tree, model_type)
                    if keys is not None:
                        found[model_type] = {"source": _SOURCE.format(version=version, path=path), "keys": keys}
    text = json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False)
    (_TABLES / "config_keys.json").write_text(text + "\n", encoding="utf-8")
    for model_type in sorted(wanted - found.keys()):
        print(f"no release has {model_type}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
