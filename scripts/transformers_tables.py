"""Make evidence/tables/compatibility/transformers.json: which release first knows a model type, and what it requires.

Reads the wheels of transformers as PyPI has them (nothing of them is run):

    python scripts/transformers_tables.py --download /tmp/wheels 4.30.0 4.31.0 ... 5.23.0
    python scripts/transformers_tables.py /tmp/wheels > src/gonogo/evidence/tables/compatibility/transformers.json

The first form fetches those wheels with pip; the second reads all that are there. The more releases, the sharper the
table: a model type is dated by the first wheel that has it.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename
from packaging.version import Version

MAPPINGS = ("transformers/models/auto/configuration_auto.py", "transformers/models/auto/auto_mappings.py")
VERSIONS = "transformers/dependency_versions_table.py"
CONSTANTS = {
    "transformers/utils/import_utils.py": {"ACCELERATE_MIN_VERSION": "accelerate"},
    "transformers/integrations/peft.py": {"MIN_PEFT_VERSION": "peft"},
}
REQUIRED = ("accelerate", "deepspeed", "huggingface-hub", "peft", "safetensors", "tokenizers", "torch")


def download(folder: Path, versions: list[str]) -> None:
    """Fetch the wheels with pip, without what they depend on."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    for version in versions:
        subprocess.run([*command, f"transformers=={version}"], check=True)


def is_mapping(node: ast.AST) -> bool:
    """Whether an expression is the table of model types."""
    return isinstance(node, ast.Name) and node.id == "CONFIG_MAPPING_NAMES"


def values_of_mapping(tree: ast.Module) -> Iterator[ast.AST]:
    """What is assigned to the table, and what it is updated with."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and any(is_mapping(target) for target in targets):
            if node.value is not None:
                yield node.value
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Attribute) and function.attr == "update" and is_mapping(function.value):
                yield from node.value.args


def model_types(wheel: zipfile.ZipFile) -> set[str]:
    """The model types that AutoConfig of a release knows."""
    found: set[str] = set()
    for name in MAPPINGS:
        if name not in wheel.namelist():
            continue
        for value in values_of_mapping(ast.parse(wheel.read(name))):
            for node in ast.walk(value):
                keys: list[Any] = []
                if isinstance(node, ast.Dict):
                    keys = list(node.keys)
                elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
                    keys = [node.elts[0]]
                found |= {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return found


def requirements(wheel: zipfile.ZipFile) -> dict[str, str]:
    """What a release requires of the packages beside it, as it checks when they are used."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(wheel.read(VERSIONS))):
        if isinstance(node, ast.Dict):
            table = ast.literal_eval(node)
            for name, requirement in table.items():
                specifier = requirement[len(name) :] if requirement.startswith(name) else ""
                if name.replace("_", "-") in REQUIRED and specifier:
                    found[name.replace("_", "-")] = specifier
    for path, constants in CONSTANTS.items():
        if path in wheel.namelist():
            for statement in ast.parse(wheel.read(path)).body:
                if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                    package = constants.get(statement.targets[0].id)
                    if package and isinstance(statement.value, ast.Constant):
                        found[package] = f">={statement.value.value}"
    return found


def table(folder: Path) -> dict[str, Any]:
    """The table as the package reads it."""
    wheels = {parse_wheel_filename(path.name)[1]: path for path in folder.glob("transformers-*.whl")}
    known: dict[str, Version] = {}
    added: dict[str, list[str]] = {}
    removed: dict[str, list[str]] = {}
    required: list[dict[str, Any]] = []
    before: set[str] = set()
    for version in sorted(wheels):
        with zipfile.ZipFile(wheels[version]) as wheel:
            types, requires = model_types(wheel), requirements(wheel)
        new = sorted(name for name in types if name not in known)
        known.update(dict.fromkeys(new, version))
        if new:
            # Releases that PyPI has withdrawn (4.57.0) are not seen: models come with minor releases.
            later = any(other.release[:2] == version.release[:2] and other < version for other in wheels)
            added[str(version) if later else f"{version.major}.{version.minor}.0"] = new
        if gone := sorted(before - types):
            removed[str(version)] = gone
        if not required or required[-1]["requires"] != requires:
            required.append({"since": str(version), "requires": dict(sorted(requires.items()))})
        before = types
    releases = sorted(wheels)
    return {
        "about": "Made by scripts/transformers_tables.py from the wheels of transformers on PyPI: the model types in"
        " CONFIG_MAPPING_NAMES, and what a release requires of packages beside it.",
        "source": "https://pypi.org/project/transformers/#history",
        "oldest": str(releases[0]),
        "newest": str(releases[-1]),
        "added": added,
        "removed": removed,
        "required": required,
    }


def main() -> None:
    """Download, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--download", action="store_true")
    arguments = parser.parse_args()
    if arguments.download:
        download(arguments.folder, arguments.versions)
    else:
        print(json.dumps(table(arguments.folder), indent=1))


if __name__ == "__main__":
    main()
