"""Evaluates a script's expressions: constants and what is computed from them; otherwise, why they are unknown."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gonogo.evidence.field import Field, Status
from gonogo.evidence.script.flow import reaching_bindings, scope_binding
from gonogo.evidence.script.names import NameResolver
from gonogo.evidence.script.nodes import dotted_name
from gonogo.evidence.script.syntax_index import Binding
from gonogo.finding import Text, translated

_NAME_NOT_DEFINED = translated("{name} is not defined in this file")
_COMPUTED_REASON = translated("the value is computed only when the script runs: {text}")
_SEVERAL_VALUES_REASON = translated("{name} is assigned more than one value")
_OBJECT_MODIFIED = translated("the script modifies {name} after creating it")
_PARAMETER_REASON = translated("{name} is a parameter of {function}")
_FROM_COMMAND_LINE = translated("{text} comes from the command line (--{option})")
_ENVIRONMENT_REASON = translated("the value depends on the environment variable {name}")
_MAX_SHOWN = 80
_MAX_DEPTH = 30
_MAX_LENGTH = 10_000
_MAX_STEPS = 20_000  # `a = (b, b)`, `b = (c, c)` and so on would take exponential time


class Value(msgspec.Struct, frozen=True):
    """The value of an expression, or why it is unknown."""

    value: Any = None
    known: bool = True
    reason: Text | None = None


class Symbol(str):
    """A value that a script refers to by its qualified name: ``torch.bfloat16``."""

    __slots__ = ()


_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


class ValueResolver:
    """Evaluates expressions of one script. ``elsewhere`` provides module constants of the project's other files."""

    def __init__(self, names: NameResolver, resolve_external: Callable[[str], Value | None] | None = None) -> None:
        self.names = names
        self.elsewhere = resolve_external
        self._depth = 0
        self._steps = 0

    def value(self, node: ast.AST) -> Value:
        """The value of an expression."""
        self._steps = self._steps + 1 if self._depth else 0
        if self._depth >= _MAX_DEPTH or self._steps > _MAX_STEPS:
            return _unknown_value(node)
        self._depth += 1
        try:
            return self._evaluate_node(node)
        finally:
            self._depth -= 1

    def _evaluate_node(self, node: ast.AST) -> Value:
        if isinstance(node, ast.Constant):
            return Value(node.value)
        if isinstance(node, ast.Name):
            return self._value_of_name(node)
        if isinstance(node, ast.Attribute):
            return self._attribute_value(node)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return self._value_of_elements(node)
        if isinstance(node, ast.Dict):
            return self._value_of_dict(node)
        if isinstance(node, ast.UnaryOp):
            return self._value_of_unary(node)
        if isinstance(node, ast.BinOp):
            return self._value_of_arithmetic(node)
        if isinstance(node, ast.JoinedStr):
            return self._value_of_f_string(node)
        if isinstance(node, ast.FormattedValue) and node.format_spec is None and node.conversion == -1:
            return self.value(node.value)
        if isinstance(node, ast.IfExp):
            body, other = self.value(node.body), self.value(node.orelse)
            return (
                body if body.known and other.known and _is_same_value(body.value, other.value) else _unknown_value(node)
            )
        if isinstance(node, ast.Call):
            return self._call_value(node)
        return self._unknown_if_environment_variable(node) or _unknown_value(node)

    def _value_of_name(self, node: ast.Name) -> Value:
        scope = scope_binding(self.names.index, node.id, node)
        if scope is None:
            names = self.names.names(node)
            if not names:
                return Value(known=False, reason=_NAME_NOT_DEFINED.format(name=node.id))
            return Value(Symbol(names[0]))
        found = reaching_bindings(self.names.index, scope.names[node.id], scope, node)
        values = [self._value_of_binding(binding, node.id) for binding in found]
        unknown = next((value for value in values if not value.known), None)
        if unknown is not None:
            return (
                unknown if len(values) == 1 else Value(known=False, reason=_SEVERAL_VALUES_REASON.format(name=node.id))
            )
        if values and all(_is_same_value(value.value, values[0].value) for value in values):
            if isinstance(values[0].value, (list, dict, set)) and node.id in scope.items:
                return Value(known=False, reason=_OBJECT_MODIFIED.format(name=node.id))
            return values[0]
        return Value(known=False, reason=_SEVERAL_VALUES_REASON.format(name=node.id))

    def _value_of_binding(self, binding: Binding, name: str) -> Value:
        if binding.kind == "assign":
            value = binding.value
            for i in binding.path:
                if not isinstance(value, (ast.Tuple, ast.List)) or i >= len(value.elts):
                    return _unknown_value(binding.value)
                value = value.elts[i]
            return self.value(value)
        if binding.kind == "import":
            there = self.elsewhere(binding.value) if self.elsewhere is not None else None
            if there is not None:
                return there
            names = self.names.names_of_binding(binding)
            return Value(Symbol(names[0])) if names else Value(known=False, reason=_NAME_NOT_DEFINED.format(name=name))
        if binding.kind == "define":
            return Value(Symbol(self.names.names_of_definition(binding.node)[0]))
        if binding.kind == "parameter":
            function = getattr(binding.value, "name", "lambda")
            return Value(known=False, reason=_PARAMETER_REASON.format(name=name, function=function))
        return Value(known=False, reason=_COMPUTED_REASON.format(text=name))

    def _attribute_value(self, node: ast.Attribute) -> Value:
        held = self.names.attribute_bindings(node)
        if held is not None and held[0] is self.names:
            values = [self._value_of_binding(binding, node.attr) for binding in held[1]]
            if all(value.known and _is_same_value(value.value, values[0].value) for value in values):
                return values[0]
            return (
                values[0]
                if len(values) == 1
                else Value(known=False, reason=_SEVERAL_VALUES_REASON.format(name=_short_text(node)))
            )
        variable = self._unknown_if_environment_variable(node)
        if variable is not None:
            return variable
        names = self.names.names(node)
        if names and self.elsewhere is not None:
            there = self.elsewhere(names[0])
            if there is not None:
                return there
        kinds = self.names.kinds(node.value)
        if not kinds and names and not names[0].startswith(("os.", "sys.")):
            return Value(Symbol(names[0]))
        if self._holds_parsed_arguments(node.value, kinds):
            return Value(known=False, reason=_FROM_COMMAND_LINE.format(text=_short_text(node), option=node.attr))
        return _unknown_value(node)

    def _holds_parsed_arguments(self, node: ast.expr, kinds: tuple[str, ...]) -> bool:
        """Whether an object holds parsed command-line arguments, by its class or name."""
        if any(kind.endswith((".parse_args", ".parse_known_args[0]", "Arguments", "Config")) for kind in kinds):
            return True
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return name in ("args", "FLAGS", "opt") or name.endswith("_args")

    def _value_of_elements(self, node: ast.Tuple | ast.List | ast.Set) -> Value:
        values = []
        for element in node.elts[:_MAX_LENGTH]:
            found = self.value(element) if not isinstance(element, ast.Starred) else _unknown_value(node)
            if not found.known:
                return found
            values.append(found.value)
        if isinstance(node, ast.Tuple):
            return Value(tuple(values))
        if isinstance(node, ast.List):
            return Value(values)
        try:
            return Value(set(values))
        except TypeError:
            return _unknown_value(node)

    def _value_of_dict(self, node: ast.Dict) -> Value:
        values: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            found = self.value(item)
            if not found.known:
                return found
            if key is None:
                if not isinstance(found.value, dict):
                    return _unknown_value(node)
                values.update(found.value)
                continue
            named = self.value(key)
            if not named.known:
                return named
            try:
                values[named.value] = found.value
            except TypeError:
                return _unknown_value(node)
        return Value(values)

    def _value_of_unary(self, node: ast.UnaryOp) -> Value:
        found = self.value(node.operand)
        if not found.known:
            return found
        if isinstance(node.op, ast.Not):
            return Value(not found.value) if not isinstance(found.value, Symbol) else _unknown_value(node)
        if isinstance(found.value, (int, float)) and not isinstance(node.op, ast.Invert):
            return Value(-found.value if isinstance(node.op, ast.USub) else +found.value)
        return _unknown_value(node)

    def _value_of_arithmetic(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if not left.known or not right.known:
            return left if not left.known else right
        a, b = left.value, right.value
        if isinstance(a, Symbol) or isinstance(b, Symbol):
            return _unknown_value(node)
        numbers = isinstance(a, (int, float)) and isinstance(b, (int, float)) and abs(a) < 1e18 and abs(b) < 1e18
        joined = isinstance(node.op, ast.Add) and type(a) is type(b) and isinstance(a, (str, list, tuple))
        joined = joined and len(a) + len(b) <= _MAX_LENGTH
        if not (numbers or joined) or (isinstance(node.op, ast.Pow) and (abs(b) > 100 or abs(a) > 1e6)):
            return _unknown_value(node)
        operation = _ARITHMETIC.get(type(node.op))
        try:
            result = operation(a, b) if operation is not None else None
        except (ArithmeticError, ValueError, TypeError):
            result = None
        return Value(result) if result is not None and not isinstance(result, complex) else _unknown_value(node)

    def _value_of_f_string(self, node: ast.JoinedStr) -> Value:
        parts = []
        for part in node.values:
            found = self.value(part)
            if not found.known:
                return found
            if isinstance(found.value, Symbol) or not isinstance(found.value, (str, int, float)):
                return _unknown_value(node)
            parts.append(str(found.value))
        text = "".join(parts)
        return Value(text) if len(text) <= _MAX_LENGTH else _unknown_value(node)

    def _call_value(self, node: ast.Call) -> Value:
        variable = self._unknown_if_environment_variable(node)
        if variable is not None:
            return variable
        name = self.names.names(node.func)[:1]
        if name == ("dict",) and not node.args and all(each.arg for each in node.keywords):
            values = {}
            for keyword in node.keywords:
                found = self.value(keyword.value)
                if not found.known:
                    return found
                values[keyword.arg] = found.value
            return Value(values)
        if name in (("str",), ("int",), ("float",), ("bool",), ("list",), ("tuple",)) and len(node.args) == 1:
            found = self.value(node.args[0])
            if not found.known or node.keywords or isinstance(found.value, Symbol):
                return found if not found.known else _unknown_value(node)
            try:
                return Value(_CASTS[name[0]](found.value))
            except (TypeError, ValueError, OverflowError):
                return _unknown_value(node)
        return _unknown_value(node)

    def _unknown_if_environment_variable(self, node: ast.AST) -> Value | None:
        """An unknown value if the expression reads an environment variable, else None."""
        name = self.environment_variable(node)
        return Value(known=False, reason=_ENVIRONMENT_REASON.format(name=name)) if name is not None else None

    def environment_variable(self, node: ast.AST) -> str | None:
        """The environment variable that an expression reads, also inside ``int(...)``; None if it reads none."""
        for _ in range(_MAX_DEPTH):
            if isinstance(node, ast.Call):
                name = self.names.names(node.func)[:1]
                if name in (("os.getenv",), ("os.environ.get",), ("os.environ.setdefault",), ("os.environ.pop",)):
                    return _constant_text(node.args[0]) if node.args else None
                if name in (("int",), ("str",), ("float",), ("bool",)) and len(node.args) == 1:
                    node = node.args[0]
                    continue
                if isinstance(node.func, ast.Attribute) and node.func.attr in ("lower", "strip", "upper"):
                    node = node.func.value
                    continue
                return None
            if isinstance(node, ast.Subscript):
                read = self.names.names(node.value)[:1] == ("os.environ",)
                return _constant_text(node.slice) if read else None
            if not isinstance(node, ast.Name):
                return None
            scope = scope_binding(self.names.index, node.id, node)
            found = reaching_bindings(self.names.index, scope.names[node.id], scope, node) if scope is not None else []
            if len(found) != 1 or found[0].kind != "assign" or found[0].path:
                return None
            node = found[0].value
        return None

    def field(self, node: ast.expr, place: Any) -> Field:
        """An expression's value as a field with the place ``place``."""
        found = self.value(node)
        return (
            Field(found.value, Status.RESOLVED, place, found.reason)
            if found.known
            else Field.not_known(place, found.reason)
        )

    def module_value(self, name: str) -> Value | None:
        """The value of a module-level name, None if it isn't a constant."""
        bindings = self.names.index.module.names.get(name)
        if not bindings:
            return None
        values = [self._value_of_binding(binding, name) for binding in bindings]
        same = all(value.known and _is_same_value(value.value, values[0].value) for value in values)
        return values[0] if same else Value(known=False, reason=_SEVERAL_VALUES_REASON.format(name=name))


def _is_same_value(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _constant_text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


_CASTS: Mapping[str, Callable[[Any], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list,
    "tuple": tuple,
}


def _unknown_value(node: ast.AST) -> Value:
    """Unknown, since only a run can compute it."""
    return Value(known=False, reason=_COMPUTED_REASON.format(text=_short_text(node)))


def _short_text(node: ast.AST) -> str:
    """A short form of an expression; without ``ast.unparse``, which recurses as deep as the expression."""
    if isinstance(node, ast.Call):
        return f"{_short_text(node.func)}(...)"
    if isinstance(node, ast.Subscript):
        return f"{dotted_name(node.value) or '...'}[...]"
    return (dotted_name(node) or type(node).__name__)[:_MAX_SHOWN]
