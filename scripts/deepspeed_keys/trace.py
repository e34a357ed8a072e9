"""Follows DeepSpeed's own reading of a config through its source and notes every key that it asks for.

Both branches of each ``if`` are taken. A value is a :class:`Path` (a part of the config), a ``Constant``, a dict of
either, or unknown.
"""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

from scripts.deepspeed_keys import models
from scripts.deepspeed_keys.keys import Key
from scripts.deepspeed_keys.release import Class, Constant, Function, Module, Release, constant

_MAX_DEPTH = 15
# These hand on the part of the config that they are given, or only look at it.
_PASS_ON = frozenset({"list", "keys"})
_LOOK_AT = frozenset({"isinstance", "type", "len", "bool", "print", "any", "all", "map", "set", "sorted", "hasattr"})
_GETTERS = frozenset({"get_scalar_param", "get_dict_param", "get_list_param"})


class Path(NamedTuple):
    """A part of the config: the keys that lead to it, and to what it may be instead."""

    all: tuple[tuple[str, ...], ...]

    def __or__(self, other: Path) -> Path:
        return Path(tuple(dict.fromkeys((*self.all, *other.all))))


ROOT = Path(((),))


class Instance(NamedTuple):
    """An object that the source makes: its class and attributes."""

    of: Class
    attributes: dict[str, Any]


def keys_of(release: Release) -> Key:
    """Every key that a release's ``DeepSpeedConfig`` reads."""
    module = release.module("deepspeed.runtime.config")
    config = module.look_up("DeepSpeedConfig") if module is not None else None
    if not isinstance(config, Class):
        raise ValueError(f"DeepSpeed {release.version} has no DeepSpeedConfig where it is looked for")
    root = Key()
    tracer = _Tracer(root)
    made = Instance(config, {"_param_dict": ROOT})
    for method in ("__init__", "_initialize_params", "_do_error_check", "_do_warning_check"):
        tracer.call_method(made, method, [ROOT])
    root.free = False
    _take_removed(module, root)
    return root


def _take_removed(module: Module | None, root: Key) -> None:
    """Keys that DeepSpeed names only to refuse them."""
    for name, path in (("_REMOVED_TOP_LEVEL_CONFIG_KEYS", ()), ("_REMOVED_ZERO_CONFIG_KEYS", ("zero_optimization",))):
        node = _assigned(module, name) if module is not None else None
        for key in node.keys if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant):
                root.at((*path, str(key.value))).refused = True


def _assigned(module: Module, name: str) -> ast.expr | None:
    for statement in ast.parse(module.path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            return statement.value
    return None


class _Tracer:
    def __init__(self, root: Key) -> None:
        self.root = root
        self.depth = 0

    def call_method(self, made: Instance, name: str, arguments: list[Any]) -> Any:
        for statement in made.of.node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return self.call(Function(statement, made.of.module), [made, *arguments])
        return None

    def call(self, function: Function, arguments: list[Any], named: dict[str, Any] | None = None) -> Any:
        if self.depth >= _MAX_DEPTH or function.node.name == "_reject_removed_config_keys":
            return None
        names = [one.arg for one in function.node.args.args]
        defaults = function.node.args.defaults
        local = {
            name: constant(value, function.module)
            for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=True)
        }
        local.update(zip(names, arguments, strict=False))
        local.update(named or {})
        self.depth += 1
        result = _Frame(self, function.module, local).run(function.node.body)
        self.depth -= 1
        return result

    def note(self, path: Path, name: Any, default: Any = None) -> Any:
        """The config is asked for a key."""
        if isinstance(name, Constant) and isinstance(name.value, list):
            noted = [self.note(path, Constant(one)) for one in name.value]
            return Path(tuple(keys for one in noted if one is not None for keys in one.all))
        if not isinstance(name, Constant) or not isinstance(name.value, str):
            return None
        found = Path(tuple((*keys, name.value) for keys in path.all))
        for keys in found.all:
            key = self.root.at(keys)
            if isinstance(default, Constant):
                key.defaults_to(default.value)
        return found


class _Frame:
    """A function at work: its names."""

    def __init__(self, tracer: _Tracer, module: Module, local: dict[str, Any]) -> None:
        self.tracer = tracer
        self.module = module
        self.local = local
        self.conditions = 0
        self.result: Any = None

    def run(self, statements: list[ast.stmt]) -> Any:
        for statement in statements:
            self.take(statement)
        return self.result

    def take(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Return) and statement.value is not None:
            value = self.value(statement.value)
            if isinstance(value, (Path, dict, Instance)) or self.result is None:
                self.result = value
        elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and statement.value is not None:
            value = self.value(statement.value)
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                self.assign(target, value)
        elif isinstance(statement, ast.For):
            iterated = self.value(statement.iter)
            self.assign(statement.target, iterated if isinstance(iterated, Constant) else None)
            self.run(statement.body)
        elif isinstance(statement, ast.Expr):
            self.value(statement.value)
        elif isinstance(statement, ast.ImportFrom):
            self.module.take_import(statement)
        else:
            self.conditions += 1
            for _, field in ast.iter_fields(statement):
                if isinstance(field, ast.expr):
                    self.value(field)
                for one in field if isinstance(field, list) else ():
                    if isinstance(one, ast.stmt):
                        self.take(one)
                    elif isinstance(one, ast.withitem):
                        self.value(one.context_expr)
            self.conditions -= 1

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            before = self.local.get(target.id)
            if isinstance(before, Path) and isinstance(value, Path) and self.conditions:
                self.local[target.id] = before | value
            elif not isinstance(before, Path) or isinstance(value, Path):
                self.local[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, one in enumerate(target.elts):
                self.assign(one, value if index == 0 and isinstance(value, Constant) else None)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if isinstance(owner, Instance) and not isinstance(owner.attributes.get(target.attr), Path):
                owner.attributes[target.attr] = value
                self.let_go(value)
        elif isinstance(target, ast.Subscript):
            self.value(target.value)

    def let_go(self, value: Any) -> None:
        """A part of the config goes where it can't be followed."""
        for keys in value.all if isinstance(value, Path) else ():
            self.tracer.root.at(keys).free = True

    def value(self, node: ast.expr) -> Any:
        known = constant(node, self.module, self.local)
        if known is not None:
            return known
        if isinstance(node, ast.Name):
            return self.local[node.id] if node.id in self.local else self.module.look_up(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            return owner.attributes.get(node.attr) if isinstance(owner, Instance) else None
        if isinstance(node, ast.Subscript):
            owner = self.value(node.value)
            return self.tracer.note(owner, self.value(node.slice)) if isinstance(owner, Path) else None
        if isinstance(node, ast.Call):
            return self.called(node)
        if isinstance(node, ast.Compare):
            return self.compared(node)
        if isinstance(node, ast.IfExp):
            self.value(node.test)
            values = [self.value(node.body), self.value(node.orelse)]
            return next((one for one in values if isinstance(one, (Path, dict))), values[0])
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            return self.comprehended(node)
        if isinstance(node, ast.Dict):
            return {
                name.value: self.value(value)
                for key, value in zip(node.keys, node.values, strict=True)
                if key is not None and isinstance(name := self.value(key), Constant) and isinstance(name.value, str)
            }
        values = [self.value(one) for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
        return next((one for one in values if isinstance(one, Path)), None) if isinstance(node, ast.BoolOp) else None

    def compared(self, node: ast.Compare) -> None:
        left = self.value(node.left)
        for operator, right in zip(node.ops, node.comparators, strict=True):
            value = self.value(right)
            if isinstance(operator, (ast.In, ast.NotIn)) and isinstance(value, Path):
                self.tracer.note(value, left)
            left = value

    def comprehended(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> Any:
        over: Any = None
        for generator in node.generators:
            over = self.value(generator.iter)
            self.assign(generator.target, over if isinstance(over, Constant) else None)
        if not isinstance(node, ast.DictComp):
            self.value(node.elt)
            return None
        made: dict[str, Any] = {}
        for name in over.value if isinstance(over, Constant) and isinstance(over.value, list) else ():
            self.assign(node.generators[0].target, Constant(name))
            made[str(name)] = self.value(node.value)
        return made

    def called(self, node: ast.Call) -> Any:
        arguments = [self.value(one.value if isinstance(one, ast.Starred) else one) for one in node.args]
        named = {one.arg: self.value(one.value) for one in node.keywords if one.arg is not None}
        spread = [self.value(one.value) for one in node.keywords if one.arg is None]
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = self.value(node.func.value) if isinstance(node.func, ast.Attribute) else None
        if isinstance(owner, Path):
            return self.asked(owner, name, arguments)
        if isinstance(owner, Constant) and isinstance(owner.value, dict):
            return Constant(list(owner.value)) if name in ("keys", "items") else None
        if name in _GETTERS and len(arguments) >= 2:
            if isinstance(arguments[0], Path):
                return self.tracer.note(arguments[0], arguments[1], *arguments[2:3])
            return None
        if isinstance(owner, Instance):
            return self.tracer.call_method(owner, name, arguments)
        target = self.module.look_up(name) if isinstance(node.func, ast.Name) else None
        if isinstance(target, Function):
            return self.tracer.call(target, arguments, named)
        if isinstance(target, Class):
            return self.made(target, arguments, named, spread)
        if name in _PASS_ON:
            return arguments[0] if arguments else None
        for one in [*arguments, *named.values(), *spread] if name not in _LOOK_AT else ():
            self.let_go(one)
        return None

    def asked(self, owner: Path, method: str, arguments: list[Any]) -> Any:
        """A method of a part of the config."""
        if method in ("get", "pop", "setdefault") and arguments:
            return self.tracer.note(owner, *arguments[:2])
        if method in ("items", "values", "copy"):
            self.let_go(owner)
        return owner if method in ("keys", "copy") else None

    def made(self, of: Class, arguments: list[Any], named: dict[str, Any], spread: list[Any]) -> Any:
        if models.is_model(of):
            for one in spread:
                if isinstance(one, Path):
                    for keys in one.all:
                        models.add(self.tracer.root.at(keys), of)
                elif isinstance(one, dict):
                    named.update(one)
            for name, value in named.items():
                for keys in value.all if isinstance(value, Path) else ():
                    models.add_field(self.tracer.root.at(keys), of, name)
            return None
        made = Instance(of, {})
        self.tracer.call_method(made, "__init__", arguments)
        return made
