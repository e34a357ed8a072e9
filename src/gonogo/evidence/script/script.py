"""A Python script as evidence: its calls by qualified name, its classes, and the user's modules that it imports."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain
from typing import TypeGuard, TypeVar

from gonogo.evidence.script.calls import Call, PassedKeyword
from gonogo.evidence.script.classes import ClassInfo
from gonogo.evidence.script.nodes import dotted_name
from gonogo.evidence.script.parse import ScriptProblem
from gonogo.evidence.script.python_file import PythonFile
from gonogo.evidence.script.spelling import matches_api_name
from gonogo.evidence.script.syntax_index import FUNCTIONS, start_position
from gonogo.evidence.source_file import SourceFile

_Result = TypeVar("_Result")

__all__ = ["Call", "ClassInfo", "PassedKeyword", "Script", "ScriptProblem"]


class Script(PythonFile):
    """A Python file with its calls and classes; ``imported_by`` returns the project's modules that it imports."""

    def __init__(
        self,
        source: SourceFile,
        package: str = "",
        module: str = "",
        imported_by: Callable[[Script], tuple[Script, ...]] | None = None,
    ) -> None:
        super().__init__(source, package, module)
        self._imported_by = imported_by
        self._calls: dict[ast.Call, Call] = {}
        self._called: dict[tuple[str, ...], tuple[Call, ...]] = {}
        self._once: dict[Callable[[Script], object], object] = {}

    @cached_property
    def _calls_by_method(self) -> dict[str, list[ast.Call]]:
        """Calls of ``x.method`` by ``method``, which their name ends in whatever x is; for others see the next one."""
        found: dict[str, list[ast.Call]] = {}
        for node in self.index.calls:
            if _is_plain_method(node.func):
                found.setdefault(node.func.attr, []).append(node)
        return found

    @cached_property
    def _calls_by_function_name(self) -> dict[str, list[ast.Call]]:
        """The other calls, by the last part of each of the callee's names."""
        found: dict[str, list[ast.Call]] = {}
        for node in self.index.calls:
            if not _is_plain_method(node.func):
                for last in {name.rpartition(".")[2] for name in self.call_at(node).names}:
                    found.setdefault(last, []).append(node)
        return found

    def _candidate_calls(self, pattern: str) -> Iterator[ast.Call]:
        last = pattern.rpartition(".")[2]
        if any(each in last for each in "*?["):
            return iter(self.index.calls)
        return chain(self._calls_by_method.get(last, ()), self._calls_by_function_name.get(last, ()))

    def call_at(self, node: ast.Call) -> Call:
        """The Call for a call node of this script."""
        known = self._calls.get(node)
        if known is not None:
            return known
        names = self._without_own_module(self.names.names(node.func))
        if not names:
            written = dotted_name(node.func) if isinstance(node.func, (ast.Attribute, ast.Name)) else ""
            names = (f"?.{written}" if written else "?",)
        known = self._calls[node] = Call(node, names[0], names, self)
        return known

    def calls(self, *patterns: str) -> Iterator[Call]:
        """The calls whose callee matches a pattern, in source order; without patterns, all calls.

        Patterns are globs on the qualified name: ``"deepspeed.initialize"``, ``"*.from_pretrained"``. A class also
        matches the project's classes that derive from it, and any public alias of a name can be used.
        """
        if not patterns:
            yield from map(self.call_at, self.index.calls)
            return
        known = self._called.get(patterns)
        if known is None:
            found: dict[ast.Call, Call] = {}
            for pattern in patterns:
                for node in self._candidate_calls(pattern):
                    call = self.call_at(node)
                    if any(matches_api_name(pattern, name) for name in call.names):
                        found[node] = call
            known = self._called[patterns] = tuple(sorted(found.values(), key=lambda call: start_position(call.node)))
        yield from known

    @cached_property
    def classes(self) -> tuple[ClassInfo, ...]:
        """All classes."""
        return tuple(
            ClassInfo(
                node.name,
                self._without_own_module(self.names.ancestors(node)),
                {each.name: each for each in node.body if isinstance(each, FUNCTIONS)},
                node,
                self,
            )
            for node in self.nodes(ast.ClassDef)
        )

    def subclasses(self, *patterns: str) -> Iterator[ClassInfo]:
        """The script's classes that derive from a class of that qualified name."""
        return (each for each in self.classes if each.is_subclass(*patterns))

    def enclosing_class(self, node: ast.AST) -> ClassInfo | None:
        """The innermost class around a node."""
        found = next((each for each in self.ancestors(node) if isinstance(each, ast.ClassDef)), None)
        return next((info for info in self.classes if info.node is found), None) if found is not None else None

    @cached_property
    def imported(self) -> tuple[Script, ...]:
        """The user's own modules that it imports, each once."""
        return self._imported_by(self) if self._imported_by is not None else ()

    def cached_result(self, function: Callable[[Script], _Result]) -> _Result:
        """The result of ``function`` for this script, computed once."""
        if function not in self._once:
            self._once[function] = function(self)
        return self._once[function]  # type: ignore[return-value]


def _is_plain_method(func: ast.expr) -> TypeGuard[ast.Attribute]:
    """Whether a callee's name certainly ends in its attribute's name: no class, and no function stored on self."""
    if not isinstance(func, ast.Attribute) or func.attr[:1].isupper():
        return False
    return not (isinstance(func.value, ast.Name) and func.value.id == "self")
