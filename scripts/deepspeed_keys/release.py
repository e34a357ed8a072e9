"""The source of one release: its modules, and what their names stand for, without running them."""

from __future__ import annotations

import ast
import re
import sys
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple


class Function(NamedTuple):
    """A function with the module that its names are looked up in."""

    node: ast.FunctionDef
    module: Module


class Class(NamedTuple):
    """A class with the module that its names are looked up in."""

    node: ast.ClassDef
    module: Module


class Import(NamedTuple):
    """A name that comes from another module; looked up when it is needed."""

    module: str
    name: str


class Constant(NamedTuple):
    """A value that the source states."""

    value: Any


class Release:
    """An unpacked or installed DeepSpeed. ``package`` is the folder with its ``__init__.py``."""

    def __init__(self, package: Path, version: str) -> None:
        self.package = package
        self.version = version
        self._modules: dict[str, Module | None] = {}

    @classmethod
    def unpacked(cls, folder: Path) -> Release:
        """A source distribution's folder."""
        told = re.search(r"^Version: (\S+)", (folder / "PKG-INFO").read_text(encoding="utf-8"), re.MULTILINE)
        if told is None:
            raise ValueError(f"{folder} does not say which version it is")
        return cls(folder / "deepspeed", told.group(1))

    def module(self, name: str) -> Module | None:
        """A module by its dotted name, or None where the release has none."""
        if name not in self._modules:
            self._modules[name] = None
            path = self.package.parent.joinpath(*name.split("."))
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    self._modules[name] = module = Module(self, name, file)
                    module.read()
                    break
        return self._modules[name]

    def classes(self, name: str) -> list[Class]:
        """Every class of that name in the package."""
        return self._classes.get(name, [])

    @cached_property
    def _classes(self) -> dict[str, list[Class]]:
        found: dict[str, list[Class]] = {}
        for folder in ("ops", "runtime"):
            for file in sorted((self.package / folder).rglob("*.py")):
                relative = file.relative_to(self.package.parent).with_suffix("")
                if "class " not in file.read_text(encoding="utf-8"):
                    continue
                module = self.module(".".join(relative.parts).removesuffix(".__init__"))
                for value in module.names.values() if module is not None else ():
                    if isinstance(value, Class) and value.module is module:
                        found.setdefault(value.node.name, []).append(value)
        return found


class Module:
    """One file: its top-level names."""

    def __init__(self, release: Release, name: str, path: Path) -> None:
        self.release = release
        self.name = name
        self.path = path
        self.names: dict[str, Any] = {}

    def read(self) -> None:
        """Collect the names. Apart from the constructor, since modules import each other."""
        self._take(ast.parse(self.path.read_text(encoding="utf-8")).body)

    def look_up(self, name: str) -> Any:
        """What a name stands for: a Function, a Class, a Constant, or None."""
        value = self.names.get(name)
        for _ in range(10):
            if not isinstance(value, Import):
                return value
            module = self.release.module(value.module)
            inner = module.names.get(value.name) if module is not None else None
            value = inner if inner is not None else self.release.module(f"{value.module}.{value.name}")
        return None

    def _take(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.FunctionDef):
                self.names[statement.name] = Function(statement, self)
            elif isinstance(statement, ast.ClassDef):
                self.names[statement.name] = Class(statement, self)
            elif isinstance(statement, ast.ImportFrom):
                self.take_import(statement)
            elif isinstance(statement, ast.If):
                self._take(statement.body)
                self._take(statement.orelse)
            elif isinstance(statement, ast.Try):
                self._take(statement.body)
            elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                value = constant(statement.value, self)
                for target in targets:
                    if isinstance(target, ast.Name):
                        if value is not None:
                            self.names[target.id] = value
                        elif isinstance(statement.value, ast.Subscript):  # PassName = Literal["z1", "z3"]
                            self.names[target.id] = statement.value

    def take_import(self, statement: ast.ImportFrom) -> None:
        """Note where names come from."""
        base = statement.module or ""
        if statement.level:
            parts = self.name.split(".") + (["__init__"] if self.path.name == "__init__.py" else [])
            base = ".".join(parts[: -statement.level] + ([base] if base else []))
        for alias in statement.names:
            if alias.name == "*":
                module = self.release.module(base)
                self.names.update(module.names if module is not None else {})
            elif base.split(".")[0] == "deepspeed":
                self.names[alias.asname or alias.name] = Import(base, alias.name)


def constant(node: ast.expr, module: Module, local: dict[str, Any] | None = None) -> Constant | None:
    """The value of an expression of constants, or None where it is more than that."""
    try:
        return Constant(_value(node, module, local or {}))
    except (_NotConstant, ArithmeticError, TypeError, ValueError):
        return None


class _NotConstant(Exception):
    pass


def _value(node: ast.expr, module: Module, local: dict[str, Any]) -> Any:
    def inner(one: ast.expr) -> Any:
        return _value(one, module, local)

    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        found = local[node.id] if node.id in local else module.look_up(node.id)
        if isinstance(found, Constant):
            return found.value
    if isinstance(node, ast.Attribute):
        if ast.unparse(node) == "sys.maxsize":
            return sys.maxsize
        owner = module.look_up(node.value.id) if isinstance(node.value, ast.Name) else None
        if isinstance(owner, Class):
            for statement in owner.node.body:
                if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == node.attr:
                    return _value(statement.value, owner.module, {})
        if isinstance(owner, Module) and isinstance(owner.names.get(node.attr), Constant):
            return owner.names[node.attr].value
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [inner(one) for one in node.elts]
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        return {inner(key): inner(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -inner(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = inner(node.left), inner(node.right)
        operations = {ast.Add: "__add__", ast.Mult: "__mul__", ast.Pow: "__pow__", ast.LShift: "__lshift__"}
        operation = operations.get(type(node.op))
        if operation is not None and type(left) is type(right):
            return getattr(left, operation)(right)
    if isinstance(node, ast.JoinedStr):
        parts = (one.value if isinstance(one, ast.FormattedValue) else one for one in node.values)
        return "".join(str(inner(one)) for one in parts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        if node.func.id in ("int", "pp_int"):
            return int(inner(node.args[0]))
        if node.func.id in ("float", "str", "list", "tuple"):
            return {"float": float, "str": str, "list": list, "tuple": list}[node.func.id](inner(node.args[0]))
    raise _NotConstant
