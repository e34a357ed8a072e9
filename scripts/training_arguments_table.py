"""Write src/gonogo/evidence/tables/training_arguments.json: which release of transformers knows which argument.

    pip download --no-deps -d wheels transformers==4.28.0 transformers==4.29.0 ...
    python scripts/training_arguments_table.py wheels/*.whl

Reads the classes as source (ast), so neither torch nor transformers is imported. One wheel for each minor release at
which the fields change, and for the one before it: fields change with minor releases.
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from packaging.version import Version

TABLE = Path(__file__).parents[1] / "src" / "gonogo" / "data" / "training_arguments.json"
SOURCE = "https://github.com/huggingface/transformers/blob/main/src/transformers/training_args.py"
_NOT_LITERAL = object()


def fields_of(source: str, class_name: str) -> dict[str, Any]:
    """The fields of a dataclass with their defaults; :data:`_NOT_LITERAL` where that is no literal."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return {
                statement.target.id: _default(statement.value)
                for statement in node.body
                if isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and not statement.target.id.startswith("_")
                and "ClassVar" not in ast.unparse(statement.annotation)
            }
    raise SystemExit(f"no class {class_name}")


def _default(value: ast.expr | None) -> Any:
    if isinstance(value, ast.Call):  # field(default=..., metadata=...)
        value = next((keyword.value for keyword in value.keywords if keyword.arg == "default"), None)
    try:
        return ast.literal_eval(value) if value is not None else _NOT_LITERAL
    except ValueError:
        return value.value if isinstance(value, ast.Constant) else _NOT_LITERAL


def trainer_arguments(source: str) -> dict[str, Any]:
    """What Trainer() takes: its parameters, and the old names that a decorator still turns into new ones."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == "Trainer":
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    names = [argument.arg for argument in method.args.args[1:]]
                    names += [
                        ast.literal_eval(decorator.args[0])
                        for decorator in method.decorator_list
                        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "deprecate_kwarg"
                    ]
                    return dict.fromkeys(names, _NOT_LITERAL)
    raise SystemExit("no Trainer.__init__")


def spans_of(known: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each name the releases ``since`` and ``until`` (the first without it), and its default where it has one."""
    releases = list(known)
    table: dict[str, dict[str, Any]] = {}
    for name in sorted({name for of_release in known.values() for name in of_release}):
        having = [release for release in releases if name in known[release]]
        first, last = releases.index(having[0]), releases.index(having[-1])
        if having != releases[first : last + 1]:
            raise SystemExit(f"{name} comes and goes: {having}")
        entry: dict[str, Any] = {}
        if first:
            entry["since"] = having[0]
        if last + 1 < len(releases):
            entry["until"] = releases[last + 1]
        defaults = [known[release][name] for release in having]
        if all(default is not _NOT_LITERAL and default == defaults[0] for default in defaults):
            entry["default"] = defaults[0]
        table[name] = entry
    return table


def main(wheels: list[str]) -> None:
    """Read the wheels and write the table."""
    by_version = sorted(
        ((Version(Path(wheel).name.split("-")[1]), wheel) for wheel in wheels), key=lambda pair: pair[0]
    )
    arguments: dict[str, dict[str, Any]] = {}
    seq2seq: dict[str, dict[str, Any]] = {}
    trainer: dict[str, dict[str, Any]] = {}
    for version, wheel in by_version:
        release = f"{version.major}.{version.minor}"
        with zipfile.ZipFile(wheel) as archive:
            read = {
                name: archive.read(f"transformers/{name}.py").decode()
                for name in ("training_args", "training_args_seq2seq", "trainer")
            }
        arguments[release] = fields_of(read["training_args"], "TrainingArguments")
        seq2seq[release] = fields_of(read["training_args_seq2seq"], "Seq2SeqTrainingArguments")
        trainer[release] = trainer_arguments(read["trainer"])
    table = {
        "source": SOURCE,
        "releases": list(arguments),
        "TrainingArguments": spans_of(arguments),
        "Seq2SeqTrainingArguments": spans_of(seq2seq),
        "Trainer": spans_of(trainer),
    }
    lines = []
    for key, value in table.items():
        if isinstance(value, dict):
            inner = ",\n".join(f"    {json.dumps(name)}: {json.dumps(entry)}" for name, entry in value.items())
            lines.append(f"  {json.dumps(key)}: {{\n{inner}\n  }}")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
