"""The table of TrainingArguments against the transformers that is installed: it says when they drift."""

from __future__ import annotations

import ast
import importlib.util
import json
from importlib import metadata
from importlib.resources import files
from pathlib import Path

import pytest
from packaging.version import Version

TABLE = json.loads((files("gonogo.evidence.tables") / "training_arguments.json").read_bytes())


def test_borders_are_releases_of_the_table() -> None:
    for name in ("TrainingArguments", "Seq2SeqTrainingArguments", "Trainer"):
        for field, entry in TABLE[name].items():
            for border in ("since", "until"):
                assert entry.get(border, TABLE["releases"][0]) in TABLE["releases"], field
            assert Version(entry.get("since", "0")) < Version(entry.get("until", "99")), field
    assert TABLE["releases"] == sorted(TABLE["releases"], key=Version)


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_the_installed_release_is_as_the_table_says() -> None:
    installed = Version(metadata.version("transformers"))
    if installed > Version(f"{TABLE['releases'][-1]}.99"):
        pytest.skip(f"transformers {installed} is newer: run scripts/training_arguments_table.py with its wheel")
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).with_name("training_args.py").read_bytes())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "TrainingArguments")
    there = {
        node.target.id
        for node in body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and not node.target.id.startswith("_")
        and "ClassVar" not in ast.unparse(node.annotation)
    }
    told = {
        name
        for name, entry in TABLE["TrainingArguments"].items()
        if Version(entry.get("since", "0")) <= installed < Version(entry.get("until", "99"))
    }
    assert there == told
