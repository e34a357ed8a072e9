"""A call in a script: the function called, and its arguments, including those passed through ``**kwargs``."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import Any

import msgspec

from gonogo.evidence.field import Field
from gonogo.evidence.script.classes import class_default
from gonogo.evidence.script.flow import has_always_run_before, reaching_bindings, scope_binding
from gonogo.evidence.script.python_file import PythonFile
from gonogo.evidence.script.syntax_index import start_position
from gonogo.evidence.source_file import Place
from gonogo.finding import translated

_UNPACKED_KWARGS_REASON = translated("**{name} may contain this argument")
_UNPACKED_ARGS_REASON = translated(
    "an earlier argument is unpacked with *, so the positions of later ones are not known"
)
_SET_CONDITIONALLY = translated("the argument is set only under a condition")


class PassedKeyword(msgspec.Struct, frozen=True):
    """One keyword argument of a call: its value, and the node that sets it.

    ``source`` is the :class:`ast.keyword` of the call itself; the key of a dictionary; or the statement
    ``kwargs["name"] = value``. ``certain`` is False if it is set conditionally.
    """

    value: ast.expr
    source: ast.AST
    certain: bool = True


class Call(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One call in a script. ``name`` is the qualified name of the callee, ``names`` includes those of its base classes.

    A method of an object of unknown type is named ``?.`` and the expression as written: ``?.model.generate``.
    """

    node: ast.Call
    name: str
    names: tuple[str, ...]
    script: PythonFile

    @property
    def place(self) -> Place:
        """The span of the whole call."""
        return self.script.place(self.node)

    @property
    def line(self) -> int:
        """The line it begins on."""
        return self.node.lineno

    @property
    def method(self) -> str:
        """The last part of the callee's name: ``generate`` for ``model.generate``."""
        return self.name.rpartition(".")[2]

    @property
    def receiver(self) -> ast.expr | None:
        """``model`` of ``model.generate(...)``."""
        return self.node.func.value if isinstance(self.node.func, ast.Attribute) else None

    @property
    def receiver_kind(self) -> str | None:
        """The qualified name of the class or call that created the receiver; None if unknown."""
        return self.script.kind_of(self.receiver) if self.receiver is not None else None

    def keyword(self, name: str) -> Field:
        """The keyword argument of that name: absent if the call certainly doesn't get it.

        For a dataclass of the project, such as a subclass of TrainingArguments, its default counts as given.
        """
        passed = self._collected_keywords[0].get(name)
        if passed is not None:
            place = self.script.place(passed.value)
            return self.script.field(passed.value) if passed.certain else Field.not_known(place, _SET_CONDITIONALLY)
        default = class_default(self.script, self.node.func, name)
        star = self._collected_keywords[1]
        if star is not None:
            return Field.not_known(self.place, _UNPACKED_KWARGS_REASON.format(name=star))
        return default if default is not None else Field.missing()

    def keyword_node(self, name: str) -> ast.expr | None:
        """The expression passed as this keyword argument, wherever it is set; None if there is none."""
        passed = self._collected_keywords[0].get(name)
        return passed.value if passed is not None else None

    def argument(self, index: int) -> Field:
        """The positional argument at that index."""
        for argument in self.node.args[: index + 1]:
            if isinstance(argument, ast.Starred):
                return Field.not_known(self.script.place(argument), _UNPACKED_ARGS_REASON)
        return self.script.field(self.node.args[index]) if index < len(self.node.args) else Field.missing()

    def has(self, name: str) -> bool:
        """Whether the call certainly gets a keyword argument of that name."""
        passed = self._collected_keywords[0].get(name)
        return passed is not None and passed.certain

    @property
    def keywords(self) -> tuple[str, ...]:
        """The names of the call's keyword arguments, as far as known (see :attr:`has_unknown_kwargs`)."""
        return tuple(self._collected_keywords[0])

    @property
    def has_unknown_kwargs(self) -> bool:
        """Whether ``**kwargs`` may contain unknown keyword arguments."""
        return self._collected_keywords[1] is not None

    def keyword_place(self, name: str) -> Place | None:
        """The span that sets the keyword argument, from its name to the end of its value."""
        passed = self._collected_keywords[0].get(name)
        if passed is None:
            return None
        start, end = self.script.place(passed.source), self.script.place(passed.value)
        return start.source.place(start.start, max(end.end, start.end))

    def passed_keyword(self, name: str) -> PassedKeyword | None:
        """How the keyword argument of that name is passed."""
        return self._collected_keywords[0].get(name)

    @cached_property
    def _collected_keywords(self) -> tuple[dict[str, PassedKeyword], str | None]:
        """The keyword arguments by name, and the name of an unpacked ``**`` expression that can't be resolved."""
        passed: dict[str, PassedKeyword] = {}
        unknown: str | None = None
        for keyword in self.node.keywords:
            if keyword.arg is not None:
                passed[keyword.arg] = PassedKeyword(keyword.value, keyword)
            else:
                rest = self._collect_unpacked(keyword.value, passed, 0)
                unknown = unknown or rest
        return passed, unknown

    def _collect_unpacked(
        self, node: ast.expr, passed_arguments: dict[str, PassedKeyword], depth: int, is_certain: bool = True
    ) -> str | None:
        """Add the contents of ``**node``; returns the name of what can't be resolved, or None."""
        if depth > 5:
            return "..."
        if isinstance(node, ast.Dict):
            unknown = None
            for key, value in zip(node.keys, node.values, strict=True):
                if key is None:
                    unknown = self._collect_unpacked(value, passed_arguments, depth + 1, is_certain) or unknown
                elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                    passed_arguments[key.value] = PassedKeyword(value, key, is_certain)
                else:
                    unknown = "{...}"
            return unknown
        if isinstance(node, ast.Call) and not node.args and self.script.qualified(node.func) == "dict":
            unknown = None
            for keyword in node.keywords:
                if keyword.arg is None:
                    unknown = self._collect_unpacked(keyword.value, passed_arguments, depth + 1, is_certain) or unknown
                else:
                    passed_arguments[keyword.arg] = PassedKeyword(keyword.value, keyword, is_certain)
            return unknown
        if isinstance(node, ast.IfExp):
            left = self._collect_unpacked(node.body, passed_arguments, depth + 1, False)
            return self._collect_unpacked(node.orelse, passed_arguments, depth + 1, False) or left
        return (
            self._collect_unpacked_name(node, passed_arguments, depth, is_certain)
            if isinstance(node, ast.Name)
            else "..."
        )

    def _collect_unpacked_name(
        self, node: ast.Name, passed_arguments: dict[str, PassedKeyword], depth: int, is_certain: bool
    ) -> str | None:
        index = self.script.index
        scope = scope_binding(index, node.id, node)
        if scope is None:
            return node.id
        found = reaching_bindings(index, scope.names[node.id], scope, node)
        if len(found) != 1 or found[0].kind != "assign" or found[0].path:
            return node.id
        made: Any = found[0]
        unknown = self._collect_unpacked(made.value, passed_arguments, depth + 1, is_certain)
        if unknown is not None:
            unknown = node.id
        same_code = index.scope_at(self.node) is scope
        for statement in scope.items.get(node.id, ()):
            target = statement.targets[0]
            if not isinstance(target, ast.Subscript):
                continue
            if same_code and not start_position(made.node) < start_position(statement) < start_position(self.node):
                continue
            key = self.script.field(target.slice).string
            if key is None:
                unknown = node.id
            else:
                surely = is_certain and same_code and has_always_run_before(index, statement, self.node)
                if surely or key not in passed_arguments:
                    passed_arguments[key] = PassedKeyword(statement.value, statement, surely)
                else:
                    passed_arguments[key] = PassedKeyword(
                        passed_arguments[key].value, passed_arguments[key].source, False
                    )
        for call in index.calls:
            func = call.func
            if (
                isinstance(func, ast.Attribute)
                and isinstance(func.value, ast.Name)
                and func.value.id == node.id
                and func.attr in ("update", "pop", "setdefault", "clear")
                and start_position(call) < start_position(self.node)
            ):
                unknown = (
                    self._apply_mutation(
                        call,
                        func.attr,
                        passed_arguments,
                        depth,
                        is_certain and has_always_run_before(index, call, self.node),
                    )
                    or unknown
                )
        return unknown

    def _apply_mutation(
        self, call: ast.Call, method: str, passed_arguments: dict[str, PassedKeyword], depth: int, is_certain: bool
    ) -> str | None:
        """Apply one modification of the dictionary that ``**`` unpacks."""
        first = self.script.field(call.args[0]).string if call.args else None
        if method == "update":
            unknown = None
            for keyword in call.keywords:
                if keyword.arg is not None:
                    passed_arguments[keyword.arg] = PassedKeyword(keyword.value, keyword, is_certain)
                else:
                    unknown = "..."
            return (
                self._collect_unpacked(call.args[0], passed_arguments, depth + 1, is_certain) if call.args else None
            ) or unknown
        if method == "pop" and first is not None:
            if is_certain:
                passed_arguments.pop(first, None)
            elif first in passed_arguments:
                passed_arguments[first] = PassedKeyword(
                    passed_arguments[first].value, passed_arguments[first].source, False
                )
            return None
        if method == "setdefault" and first is not None and len(call.args) > 1:
            passed_arguments.setdefault(first, PassedKeyword(call.args[1], call, is_certain))
            return None
        return "..."
