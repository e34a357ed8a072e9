"""A Python script as evidence: its calls by qualified name, its values with their places, and edits of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from gonogo.evidence.document.source_file import SourceFile
from gonogo.evidence.field import Field
from gonogo.evidence.script.calls import Call, Passed
from gonogo.evidence.script.changes import Changes
from gonogo.evidence.script.classes import ClassInfo, Defaults, Function
from gonogo.evidence.script.index import FUNCTIONS, Index, position
from gonogo.evidence.script.kinds import NameResolver
from gonogo.evidence.script.names import dotted
from gonogo.evidence.script.parse import Parsed, ScriptProblem, parse, without_collecting
from gonogo.evidence.script.reasons import Value
from gonogo.evidence.script.spelling import matches
from gonogo.evidence.script.surroundings import Surroundings
from gonogo.evidence.script.values import ValueResolver

if TYPE_CHECKING:
    from gonogo.evidence.script.imports import Project
    from gonogo.evidence.script.parameters import ParameterUse
    from gonogo.evidence.script.variables import EnvironmentSetting

_Node = TypeVar("_Node", bound=ast.AST)

__all__ = ["Call", "ClassInfo", "Passed", "Script", "ScriptProblem", "project_scripts", "read_script"]


class Script(Surroundings, Changes, Defaults):
    """One Python file. ``tree`` is None where it has a ``problem``; everything then answers as of an empty file."""

    def __init__(self, source: SourceFile, project: Project | None = None, package: str = "", module: str = "") -> None:
        self.source = source
        self.package = package
        self.module = module
        self.project = project
        self._calls: dict[ast.Call, Call] = {}
        self._called: dict[tuple[str, ...], tuple[Call, ...]] = {}
        self.passed_cache: dict[ast.Call, tuple[dict[str, Passed], str | None]] = {}

    def __repr__(self) -> str:
        return f"Script({self.path!r})"

    def take(self, source: SourceFile) -> None:
        """Name the same bytes by another path, before anything was reported of them."""
        self.source = source
        self.__dict__.pop("_editor", None)

    @property
    def path(self) -> str:
        """The path as users are shown it."""
        return self.source.path

    @cached_property
    def parsed(self) -> Parsed:
        """The tree, or what is wrong with the file."""
        return parse(self.source)

    @property
    def tree(self) -> ast.Module | None:
        """The syntax tree."""
        return self.parsed.tree

    @property
    def problem(self) -> ScriptProblem | None:
        """Why there is no syntax tree."""
        return self.parsed.problem

    @cached_property
    def index(self) -> Index:
        """Parents and scopes."""
        with without_collecting():
            return Index(self.tree or ast.Module(body=[], type_ignores=[]), self.package)

    @cached_property
    def names(self) -> NameResolver:
        """What names stand for."""
        elsewhere = self.project.seen_from(self) if self.project is not None else None
        return NameResolver(self.index, elsewhere, self.module)

    @cached_property
    def values(self) -> ValueResolver:
        """What expressions come to."""
        return ValueResolver(self.names, self._value_elsewhere)

    def _value_elsewhere(self, name: str) -> Value | None:
        return self.project.seen_from(self).value(name) if self.project is not None else None

    # Names and values

    def qualified(self, node: ast.AST) -> str | None:
        """The qualified name of a class, function, module or method; None where it can't be told."""
        names = self._own(self.names.names(node))
        return names[0] if names else None

    def _own(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Names as the script itself would say them: its own functions and classes without its module."""
        if not names or not self.module or not any(name.startswith(self.module) for name in names):
            return names
        prefix = f"{self.module}."
        return tuple(name.removeprefix(prefix) for name in names)

    def kind_of(self, node: ast.AST) -> str | None:
        """The qualified name of the call or class that made the object a node stands for.

        ``deepspeed.initialize`` for the engine, ``transformers.AutoModelForCausalLM.from_pretrained`` for a model;
        what is unpacked at another place than an engine is ``name[1]``; an attribute of it is ``name.attribute``.
        """
        kinds = self.kinds_of(node)
        return kinds[0] if kinds else None

    def kinds_of(self, node: ast.AST) -> tuple[str, ...]:
        """As :meth:`kind_of`, with the names of the classes that a class of the project derives from."""
        return self._own(self.names.kinds(node))

    def field(self, node: ast.expr) -> Field:
        """The value of an expression: of constants, and of names that hold one; otherwise unknown, with the reason."""
        return self.values.field(node, self.place(node))

    def environment_variable(self, node: ast.AST) -> str | None:
        """The environment variable that an expression reads: ``int(os.environ["LOCAL_RANK"])``."""
        return self.values.environment_variable(node)

    # What is in it

    @cached_property
    def _methods(self) -> dict[str, list[ast.Call]]:
        """Calls of ``x.method`` by ``method``: whatever x is, the name ends so. The others are in :attr:`_named`."""
        found: dict[str, list[ast.Call]] = {}
        for node in self.index.calls:
            if _is_plain_method(node.func):
                found.setdefault(node.func.attr, []).append(node)
        return found

    @cached_property
    def _named(self) -> dict[str, list[ast.Call]]:
        """The other calls, by the last part of each name of what is called."""
        found: dict[str, list[ast.Call]] = {}
        for node in self.index.calls:
            if not _is_plain_method(node.func):
                for last in {name.rpartition(".")[2] for name in self.call_at(node).names}:
                    found.setdefault(last, []).append(node)
        return found

    def _candidates(self, pattern: str) -> Iterator[ast.Call]:
        last = pattern.rpartition(".")[2]
        if any(each in last for each in "*?["):
            return iter(self.index.calls)
        return chain(self._methods.get(last, ()), self._named.get(last, ()))

    def call_at(self, node: ast.Call) -> Call:
        """A call of this script's tree."""
        known = self._calls.get(node)
        if known is not None:
            return known
        names = self._own(self.names.names(node.func))
        if not names:
            written = dotted(node.func) if isinstance(node.func, (ast.Attribute, ast.Name)) else ""
            names = (f"?.{written}" if written else "?",)
        known = self._calls[node] = Call(node, names[0], names, self)
        return known

    def calls(self, *patterns: str) -> Iterator[Call]:
        """The calls of what a pattern names, in the order of the file; without patterns all calls.

        Patterns are globs on the qualified name: ``"deepspeed.initialize"``, ``"*.from_pretrained"``. A class also
        stands for the project's classes that derive from it, and any of a name's public spellings will do.
        """
        if not patterns:
            yield from map(self.call_at, self.index.calls)
            return
        known = self._called.get(patterns)
        if known is None:
            found: dict[ast.Call, Call] = {}
            for pattern in patterns:
                for node in self._candidates(pattern):
                    call = self.call_at(node)
                    if any(matches(pattern, name) for name in call.names):
                        found[node] = call
            known = self._called[patterns] = tuple(sorted(found.values(), key=lambda call: position(call.node)))
        yield from known

    def nodes(self, *types: type[_Node]) -> Iterator[_Node]:
        """The nodes of these types, in the order of the file."""
        for each in types:
            yield from self.index.by_type.get(each, ())

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """All functions and methods."""
        return tuple(self.nodes(ast.FunctionDef, ast.AsyncFunctionDef))

    @cached_property
    def classes(self) -> tuple[ClassInfo, ...]:
        """All classes."""
        return tuple(
            ClassInfo(
                node.name,
                self._own(self.names.ancestors(node)),
                {each.name: each for each in node.body if isinstance(each, FUNCTIONS)},
                node,
                self,
            )
            for node in self.nodes(ast.ClassDef)
        )

    def subclasses(self, *patterns: str) -> Iterator[ClassInfo]:
        """The script's classes that derive from a class of that qualified name."""
        return (each for each in self.classes if each.is_subclass(*patterns))

    @cached_property
    def loops(self) -> tuple[ast.For | ast.AsyncFor | ast.While, ...]:
        """All ``for`` and ``while`` statements."""
        return tuple(self.nodes(ast.For, ast.AsyncFor, ast.While))

    def imports(self, module: str) -> bool:
        """Whether the script imports a module or something from it."""
        prefix = f"{module}."
        named = (alias.name for node in self.nodes(ast.Import) for alias in node.names)
        taken = (node.module or "" for node in self.nodes(ast.ImportFrom) if not node.level)
        return any(name == module or name.startswith(prefix) for name in (*named, *taken))

    @cached_property
    def imported(self) -> tuple[Script, ...]:
        """The user's own modules that it imports, each once."""
        return self.project.imported_by(self) if self.project is not None else ()

    @cached_property
    def _parameter_uses(self) -> tuple[ParameterUse, ...]:
        from gonogo.evidence.script.parameters import parameter_uses

        return parameter_uses(self)

    def environment_settings(self) -> tuple[EnvironmentSetting, ...]:
        """The environment variables that the script sets itself."""
        from gonogo.evidence.script.variables import environment_settings

        return environment_settings(self)

    def parameter_uses(self) -> tuple[ParameterUse, ...]:
        """Where parameters are used themselves, rather than through the modules that hold them."""
        return self._parameter_uses


def _is_plain_method(func: ast.expr) -> TypeGuard[ast.Attribute]:
    """Whether what is called goes by its attribute's name for certain: no class, and no function that self holds."""
    if not isinstance(func, ast.Attribute) or func.attr[:1].isupper():
        return False
    return not (isinstance(func.value, ast.Name) and func.value.id == "self")


def read_script(source: SourceFile, project: Project | None = None) -> Script:
    """A script by itself, with the modules beside it that it imports; of many in a folder, give them its project."""
    from gonogo.evidence.script.imports import Project

    return project.script(source) if project is not None else Project.around(source).entry


def project_scripts(entry: Path | str, root: Path | str) -> Sequence[Script]:
    """The entry script and all of the user's own modules under ``root`` that it imports, each once, entry first."""
    from gonogo.evidence.script.imports import Project

    return Project(Path(root), SourceFile.read(entry)).all_scripts()
