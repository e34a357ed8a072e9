"""How vLLM names the weights that it reads, out of its source, for gonogo.virtual.rollout.weight_names.

    python scripts/vllm_loaders.py FOLDER > src/gonogo/evidence/tables/vllm_loaders.json

A folder holds an unpacked wheel, or a checkout; nothing of it is run. An architecture is told of if its classes load
their weights by ``AutoWeightsLoader`` and a mapper of constants alone: others read names by code of their own.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MODELS = "vllm/model_executor/models"
_PARTS = ("orig_to_new_substr", "orig_to_new_stacked", "orig_to_new_prefix", "orig_to_new_suffix")
_IGNORING = ("ignore_unexpected_prefixes", "ignore_unexpected_suffixes")
_OTHER_NAMES_ONLY = {"maybe_remap_mistral"}
"""Changes the names of Mistral's own format, and leaves those of transformers' as they are."""


class Source:
    """The classes of vLLM's models, by module."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / _MODELS
        self._modules: dict[str, dict[str, Any]] = {}

    def names_of(self, module: str) -> dict[str, Any]:
        """Classes of a module by name; for imported ones the module and the name there."""
        if module not in self._modules:
            found: dict[str, Any] = {}
            path = self._folder / f"{module}.py"
            tree = ast.parse(path.read_bytes()) if path.exists() else ast.Module([], [])
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    found[node.name] = node
                elif (
                    isinstance(node, ast.ImportFrom)
                    and node.module
                    and (node.level == 1 or _MODELS_DOTTED in node.module)
                ):
                    for alias in node.names:
                        found[alias.asname or alias.name] = (node.module.rpartition(".")[2], alias.name)
            self._modules[module] = found
        return self._modules[module]

    def found(self, module: str, name: str) -> tuple[str, ast.ClassDef] | None:
        """The class that a name of a module stands for, with the module that defines it."""
        for _ in range(5):
            node = self.names_of(module).get(name)
            if isinstance(node, ast.ClassDef):
                return module, node
            if node is None:
                return None
            module, name = node
        return None

    def bases(self, module: str, name: str) -> Iterator[tuple[str, ast.ClassDef]]:
        """A class and those that it inherits from, in vLLM's models, the nearest first."""
        place = self.found(module, name)
        if place is None:
            return
        yield place
        for base in place[1].bases:
            if isinstance(base, ast.Name):
                yield from self.bases(place[0], base.id)

    def member(self, module: str, name: str, wanted: str) -> tuple[str, ast.expr | ast.FunctionDef] | None:
        """A class attribute or method, inherited or not, with the module that defines it."""
        for where, node in self.bases(module, name):
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name == wanted:
                    return where, one
                targets = (
                    one.targets
                    if isinstance(one, ast.Assign)
                    else [one.target]
                    if isinstance(one, ast.AnnAssign)
                    else []
                )
                if any(isinstance(target, ast.Name) and target.id == wanted for target in targets) and one.value:  # type: ignore[attr-defined]
                    return where, one.value  # type: ignore[attr-defined]
        return None


_MODELS_DOTTED = _MODELS.replace("/", ".")


def _constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise Unknown from None


class Unknown(Exception):
    """Not of constants alone."""


def mapper_of(source: Source, module: str, name: str) -> dict[str, Any]:
    """``hf_to_vllm_mapper`` of a class; raises Unknown."""
    place = source.member(module, name, "hf_to_vllm_mapper")
    if place is None:
        return {}
    where, node = place
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr == "hf_to_vllm_mapper":
        return mapper_of(source, where, node.value.id)
    if (
        not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "WeightsMapper")
        or node.args
    ):
        raise Unknown
    if any(word.arg not in _PARTS for word in node.keywords):
        raise Unknown
    return {str(word.arg).removeprefix("orig_to_new_"): _constant(word.value) for word in node.keywords}


def loading(source: Source, module: str, name: str) -> dict[str, Any] | None:
    """How a class loads weights; None if it leaves it to what contains it. Raises Unknown."""
    place = source.member(module, name, "load_weights")
    if place is None:
        return None
    _, method = place
    if not isinstance(method, ast.FunctionDef):
        raise Unknown
    told: dict[str, Any] = {"mapper": {}}
    body = [one for one in method.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    if len(body) != 2 or not isinstance(body[0], ast.Assign) or not isinstance(body[1], ast.Return):
        raise Unknown
    made, used = body[0].value, body[1].value
    if not (isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "AutoWeightsLoader"):
        raise Unknown
    for word in made.keywords:
        if word.arg not in _IGNORING:
            raise Unknown
        told[word.arg] = _constant(word.value)
    if not (isinstance(used, ast.Call) and isinstance(used.func, ast.Attribute) and used.func.attr == "load_weights"):
        raise Unknown
    if not (isinstance(used.args[0], ast.Name) or _leaves_names(used.args[0])):
        raise Unknown
    for word in used.keywords:
        if not (word.arg == "mapper" and ast.unparse(word.value) == "self.hf_to_vllm_mapper"):
            raise Unknown
        told["mapper"] = mapper_of(source, module, name)
    return told


def _leaves_names(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.GeneratorExp)
        and isinstance(node.elt, ast.Call)
        and isinstance(node.elt.func, ast.Attribute)
        and node.elt.func.attr in _OTHER_NAMES_ONLY
    )


def inner_classes(source: Source, module: str, name: str) -> dict[str, tuple[str, str]]:
    """What a class makes its own modules of, with the module that says so: ``self.model = Qwen2Model(…)``."""
    found: dict[str, tuple[str, str]] = {}
    for where, node in source.bases(module, name):
        for method in (one for one in node.body if isinstance(one, ast.FunctionDef)):
            for one in ast.walk(method):
                call = one.value if isinstance(one, ast.Assign) else one.value if isinstance(one, ast.Return) else None
                if not isinstance(call, ast.Call):
                    continue
                made = ast.unparse(call.func)
                if isinstance(one, ast.Return) and method.name == "_init_model":
                    found.setdefault("model", (where, made))
                elif isinstance(one, ast.Assign) and ast.unparse(one.targets[0]).startswith("self."):
                    child = ast.unparse(one.targets[0]).removeprefix("self.")
                    if source.found(where, made) and "." not in child:
                        found.setdefault(child, (where, made))
    return found


def architectures(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Architecture, module and class, of vLLM's registry."""
    tree = ast.parse((folder / _MODELS / "registry.py").read_bytes())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_TEXT_GENERATION_MODELS":
            for name, (module, made) in _constant(node.value).items():
                yield name, module, made


def main() -> None:
    """Print the table."""
    folder = Path(sys.argv[1])
    source = Source(folder)
    (release,) = (path.stem.split("-")[1].partition("+")[0] for path in folder.glob("vllm-*.dist-info"))
    rows: dict[str, Any] = {}
    for architecture, module, name in sorted(architectures(folder)):
        try:
            loads = loading(source, module, name)
            inner = {}
            for child, (where, made) in inner_classes(source, module, name).items():
                own = loading(source, where, made)
                if own is not None:
                    inner[child] = {"class": made, **own}
            packed = source.member(module, name, "packed_modules_mapping")
            embedding = source.member(module, name, "embedding_modules")
            embedded = _constant(embedding[1]) if embedding and isinstance(embedding[1], ast.expr) else []
            supports = any(
                "SupportsLoRA" in ast.unparse(base) for _, node in source.bases(module, name) for base in node.bases
            )
            if loads is None or source.found(module, name) is None:
                continue
            rows[architecture] = {
                "class": name, **loads, "inner": inner, "lora": supports,
                "packed": _constant(packed[1]) if packed and isinstance(packed[1], ast.expr) else {},
                "embedding": sorted(embedded),
            }  # fmt: skip
        except Unknown:
            continue
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in rows.items())
    print(f'{{"release": {json.dumps(release)}, "architectures": {{\n{lines}\n}}}}')


if __name__ == "__main__":
    main()
