"""DeepSpeed's pydantic models, read from their source: fields, types, defaults, bounds, deprecations."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from scripts.deepspeed_keys.keys import Key
from scripts.deepspeed_keys.release import Class, Constant, Module, constant

_BASES = frozenset({"BaseModel", "DeepSpeedConfigModel"})
_KINDS = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "str": "str",
    "Path": "str",
    "torch.dtype": "str",
    "list": "list",
    "List": "list",
    "tuple": "list",
    "Tuple": "list",
    "dict": "object",
    "Dict": "object",
}
_BOUNDS = ("gt", "ge", "lt", "le")


def is_model(of: Class) -> bool:
    """Whether a class derives from DeepSpeed's model of a config."""
    for base in of.node.bases:
        name = ast.unparse(base)
        parent = of.module.look_up(name)
        if name in _BASES or (isinstance(parent, Class) and is_model(parent)):
            return True
    return False


def add(key: Key, of: Class) -> None:
    """A model's fields become keys of the part of the config that it reads."""
    key.kind = "object"
    key.closed = True
    for module, field in _fields(of):
        _add_field(key, field, module)


def add_field(key: Key, of: Class, name: str) -> None:
    """The key is what a model takes as that field."""
    for module, field in _fields(of):
        if isinstance(field.target, ast.Name) and field.target.id == name:
            _take_annotation(key, field.annotation, module)


def _fields(of: Class) -> Iterator[tuple[Module, ast.AnnAssign]]:
    for base in of.node.bases:
        parent = of.module.look_up(ast.unparse(base))
        if isinstance(parent, Class) and parent.node.name not in _BASES:
            yield from _fields(parent)
    for statement in of.node.body:
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if not statement.target.id.startswith("_") and "ClassVar" not in ast.unparse(statement.annotation):
            yield of.module, statement


def _add_field(parent: Key, field: ast.AnnAssign, module: Module) -> None:
    assert isinstance(field.target, ast.Name)
    options = _options(field.value, module)
    name = options.get("alias") or field.target.id
    names = [name] if name == field.target.id else [name, field.target.id]
    for one in names:
        key = parent.at((one,))
        _take_annotation(key, field.annotation, module)
        key.same_as = name if one != name else ""
        key.defaults_to(options.get("default"))
        key.deprecated = bool(options.get("deprecated"))
        key.replacement = str(options.get("new_param") or "")
        key.bounds = {bound: options[bound] for bound in _BOUNDS if bound in options}


def _options(node: ast.expr | None, module: Module) -> dict[str, Any]:
    """What a field says beside its type: ``Field(default, alias=…, ge=…)`` or the default alone."""
    if node is None:
        return {}
    if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "Field"):
        value = constant(node, module)
        return {"default": value.value} if value is not None else {}
    found: dict[str, Any] = {}
    if node.args and (default := constant(node.args[0], module)) is not None:
        found["default"] = default.value
    for keyword in node.keywords:
        if keyword.arg == "json_schema_extra" and isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                told = constant(value, module)
                if isinstance(key, ast.Constant) and told is not None:
                    found[str(key.value)] = told.value
        elif keyword.arg is not None and isinstance(told := constant(keyword.value, module), Constant):
            found[keyword.arg] = told.value
    return found


def _take_annotation(key: Key, annotation: ast.expr, module: Module) -> None:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.Subscript):
        outer = ast.unparse(annotation.value).split(".")[-1]
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if outer == "Literal":
            key.values = [one.value for one in inner if isinstance(one, ast.Constant)]
        elif outer in ("Optional", "Union"):
            known = [one for one in inner if ast.unparse(one) != "None"]
            if len(known) == 1:
                _take_annotation(key, known[0], module)
            else:
                key.kind = "any"
        else:
            key.kind = _KINDS.get(outer, "any")
            key.free = key.kind == "object"
        return
    name = ast.unparse(annotation)
    target = module.look_up(name)
    if isinstance(target, Class) and is_model(target):
        add(key, target)
    elif isinstance(target, Class):
        key.values = [
            value.value
            for statement in target.node.body
            if isinstance(statement, ast.Assign) and (value := constant(statement.value, target.module)) is not None
        ]
        # ZeroStageEnum's max_stage is another name of a stage.
        key.values = list(dict.fromkeys(key.values)) if all(_plain(value) for value in key.values) else []
    elif isinstance(target, ast.Subscript):
        _take_annotation(key, target, module)
    else:
        key.kind = _KINDS.get(name, "any")
        key.free = key.kind == "object"


def _plain(value: Any) -> bool:
    return isinstance(value, (str, int))
