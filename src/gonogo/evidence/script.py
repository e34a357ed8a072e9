"""A Python script as evidence: its calls by qualified name, its values with their places, and edits of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import msgspec

from gonogo.evidence.field import Field
from gonogo.evidence.script_calls import Call, Passed
from gonogo.evidence.script_index import COMPREHENSIONS, FUNCTIONS, LOOPS, Index, position
from gonogo.evidence.script_kinds import NameResolver
from gonogo.evidence.script_names import dotted
from gonogo.evidence.script_parse import Parsed, ScriptProblem, parse
from gonogo.evidence.script_spelling import canonical
from gonogo.evidence.script_surroundings import contexts_around, tests_around
from gonogo.evidence.script_values import Value, ValueResolver
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Edit

if TYPE_CHECKING:
    from gonogo.evidence.script_edits import Editor
    from gonogo.evidence.script_imports import Project
    from gonogo.evidence.script_parameters import ParameterUse

_Node = TypeVar("_Node", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef

__all__ = ["Call", "ClassInfo", "Passed", "Script", "ScriptProblem", "project_scripts", "read_script"]


class ClassInfo(msgspec.Struct, frozen=True, eq=False):
    """One class of a script. ``bases`` are the qualified names of all that it derives from, the nearest first."""

    name: str
    bases: tuple[str, ...]
    methods: Mapping[str, Function]
    node: ast.ClassDef
    script: Script

    def is_subclass(self, *patterns: str) -> bool:
        """Whether it derives from a class whose qualified name matches."""
        return any(_matches(pattern, base) for pattern in patterns for base in self.bases)

    def default(self, name: str) -> Field:
        """The default of one of its fields: ``x: int = 1``, also within ``field(default=1)``."""
        return self.script.default_in(self.node, name)

    @property
    def defaults(self) -> tuple[str, ...]:
        """The names of the fields that have a default, as they are written in its body."""
        return tuple(name for name, value in _fields_of(self.node) if value is not None)


class Script:
    """One Python file. ``tree`` is None where it has a ``problem``; everything then answers as of an empty file."""

    def __init__(self, source: SourceFile, project: Project | None = None, package: str = "", module: str = "") -> None:
        self.source = source
        self.package = package
        self.module = module
        self._project = project
        self._calls: dict[ast.Call, Call] = {}
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
    def _parsed(self) -> Parsed:
        return parse(self.source)

    @property
    def tree(self) -> ast.Module | None:
        """The syntax tree."""
        return self._parsed.tree

    @property
    def problem(self) -> ScriptProblem | None:
        """Why there is no syntax tree."""
        return self._parsed.problem

    @cached_property
    def index(self) -> Index:
        """Parents and scopes."""
        return Index(self.tree or ast.Module(body=[], type_ignores=[]), self.package)

    @cached_property
    def names(self) -> NameResolver:
        """What names stand for."""
        elsewhere = self._project.seen_from(self) if self._project is not None else None
        return NameResolver(self.index, elsewhere, self.module)

    @cached_property
    def values(self) -> ValueResolver:
        """What expressions come to."""
        return ValueResolver(self.names, self._value_elsewhere)

    def _value_elsewhere(self, name: str) -> Value | None:
        return self._project.seen_from(self).value(name) if self._project is not None else None

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
        found: dict[ast.Call, Call] = {}
        for pattern in patterns:
            for node in self._candidates(pattern):
                call = self.call_at(node)
                if any(_matches(pattern, name) for name in call.names):
                    found[node] = call
        yield from sorted(found.values(), key=lambda call: position(call.node))

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
        return self._project.imported_by(self) if self._project is not None else ()

    def class_default(self, func: ast.AST, name: str) -> Field | None:
        """The default that a class of the project has for a field; None where the class has none or isn't known."""
        return self._class_default(func, name, set())

    def default_in(self, node: ast.ClassDef, name: str) -> Field:
        """The default of a field in a class's own body, or in those of its bases in the project."""
        return self._default_in(node, name, set())

    def _class_default(self, func: ast.AST, name: str, seen: set[ast.ClassDef]) -> Field | None:
        found = self.names.class_of(func)
        if found is None or found[1] in seen:
            return None
        resolver, node = found
        other = self
        if resolver is not self.names and self._project is not None:
            other = self._project.script_of(resolver) or self
        field = other._default_in(node, name, seen)
        return None if field.absent else field

    def _default_in(self, node: ast.ClassDef, name: str, seen: set[ast.ClassDef]) -> Field:
        seen.add(node)
        for target, value in _fields_of(node):
            if target != name:
                continue
            if value is None:
                return Field.missing()
            if isinstance(value, ast.Call) and self.qualified(value.func) == "dataclasses.field":
                default = next((each.value for each in value.keywords if each.arg == "default"), None)
                return self.field(default) if default is not None else Field.not_known(self.place(value))
            return self.field(value)
        for base in node.bases:
            inherited = self._class_default(base, name, seen)
            if inherited is not None:
                return inherited
        return Field.missing()

    @cached_property
    def _parameter_uses(self) -> tuple[ParameterUse, ...]:
        from gonogo.evidence.script_parameters import parameter_uses

        return parameter_uses(self)

    def parameter_uses(self) -> tuple[ParameterUse, ...]:
        """Where parameters are used themselves, rather than through the modules that hold them."""
        return self._parameter_uses

    # Around a node

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that holds this one."""
        return self.index.parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes that hold this one, the nearest first."""
        parents = self.index.parents
        current = parents.get(node)
        while current is not None:
            yield current
            current = parents.get(current)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The statement that a node is or belongs to."""
        return self.index.statement(node)

    def enclosing_function(self, node: ast.AST) -> Function | None:
        """The function that a node stands in."""
        return next((each for each in self.ancestors(node) if isinstance(each, FUNCTIONS)), None)

    def enclosing_class(self, node: ast.AST) -> ClassInfo | None:
        """The class that a node stands in."""
        found = next((each for each in self.ancestors(node) if isinstance(each, ast.ClassDef)), None)
        return next((info for info in self.classes if info.node is found), None) if found is not None else None

    def enclosing_loop(self, node: ast.AST) -> ast.For | ast.AsyncFor | ast.While | None:
        """The loop that runs a node again and again, in the same function."""
        for each in self.ancestors(node):
            if isinstance(each, (*FUNCTIONS, ast.Lambda)):
                return None
            if isinstance(each, LOOPS):
                return each
        return None

    def in_comprehension(self, node: ast.AST) -> bool:
        """Whether a node stands in a comprehension or generator."""
        return any(isinstance(each, COMPREHENSIONS) for each in self.ancestors(node))

    def with_contexts(self, node: ast.AST) -> tuple[str, ...]:
        """The qualified names of the ``with`` items around a node and of its function's decorators, nearest first."""
        return contexts_around(self.names, node)

    def guarded_by(self, node: ast.AST) -> tuple[ast.expr, ...]:
        """The tests that must hold for a node to run, in its function; of an ``else`` it is ``not test``."""
        return tests_around(self.index, node)

    # Places and edits

    @property
    def editable(self) -> bool:
        """Whether edits can be made: of a file in UTF-8 whose lines end alike."""
        data = self.source.data
        return (
            self.tree is not None
            and self.source.writable
            and self._parsed.encoding is None
            and (b"\r" not in data or data.count(b"\r") == data.count(b"\r\n") == data.count(b"\n"))
        )

    def place(self, node: ast.AST) -> Place:
        """Where a node stands."""
        source = self.source
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None)
        if self._parsed.encoding is not None:
            column = self._column(line, column)
            end_column = self._column(end_line, end_column) if end_column is not None else None
        start = source.offset(line, column)
        return source.place(start, source.offset(end_line, end_column) if end_column is not None else start)

    def _column(self, line: int, column: int) -> int:
        """The column in the file's own encoding of one in UTF-8."""
        encoding = self._parsed.encoding or "utf-8"
        text = self.source.line_bytes(line).decode(encoding, "replace").encode("utf-8")
        return len(text[:column].decode("utf-8", "ignore").encode(encoding, "replace"))

    def headline(self, node: ast.AST) -> Place:
        """The first line of a node: of a class or a loop, what a report should underline."""
        place = self.place(node)
        end = self.source.data.find(b"\n", place.start)
        return place if end < 0 or end >= place.end else self.source.place(place.start, end)

    @cached_property
    def _editor(self) -> Editor | None:
        from gonogo.evidence.script_edits import Editor

        return Editor(self.source, self.index) if self.editable else None

    def removing_keyword(self, call: Call | ast.Call, name: str) -> Edit | None:
        """Take a keyword out of a call; None where the call doesn't hold it itself, or nothing can be edited."""
        node = call.node if isinstance(call, Call) else call
        keyword = next((each for each in node.keywords if each.arg == name), None)
        return self._editor.remove_keyword(node, keyword) if self._editor is not None and keyword is not None else None

    def setting_keyword(self, call: Call | ast.Call, name: str, source_text: str) -> Edit | None:
        """Give a call a keyword, or the keyword another value."""
        node = call.node if isinstance(call, Call) else call
        if self._editor is None:
            return None
        keyword = next((each for each in node.keywords if each.arg == name), None)
        if keyword is None:
            return self._editor.add_keyword(node, name, source_text)
        return self.replacing(keyword, f"{name}={source_text}")

    def removing_statement(self, node: ast.stmt) -> Edit | None:
        """Take a statement out, with the comment lines right above it; the only one of its block becomes ``pass``."""
        return self._editor.remove_statement(node) if self._editor is not None else None

    def replacing(self, node: ast.AST, text: str) -> Edit | None:
        """Write something else in a node's place."""
        return self.place(node).edit(text) if self._editor is not None else None

    def inserting_before(self, statement: ast.stmt, text: str) -> Edit | None:
        """Put a statement before another, at its indentation."""
        return self._editor.insert_before(statement, text) if self._editor is not None else None

    def inserting_after(self, statement: ast.stmt, text: str) -> Edit | None:
        """Put a statement after another, at its indentation."""
        return self._editor.insert_after(statement, text) if self._editor is not None else None

    def inserting_import(self, text: str) -> Edit | None:
        """Add an import to those at the script's top."""
        return self._editor.insert_import(text) if self._editor is not None else None


def _fields_of(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that a class's body gives values or types to."""
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement.value
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield statement.targets[0].id, statement.value


def _is_plain_method(func: ast.expr) -> TypeGuard[ast.Attribute]:
    """Whether what is called goes by its attribute's name for certain: no class, and no function that self holds."""
    if not isinstance(func, ast.Attribute) or func.attr[:1].isupper():
        return False
    return not (isinstance(func.value, ast.Name) and func.value.id == "self")


@cache
def _compiled(pattern: str) -> Callable[[str], Any]:
    import fnmatch
    import re

    return re.compile(fnmatch.translate(canonical(pattern))).match


def _matches(pattern: str, name: str) -> bool:
    if pattern == name:
        return True
    if pattern.startswith("*.") and not any(each in pattern[1:] for each in "*?["):
        return name.endswith(pattern[1:])
    return _compiled(pattern)(name) is not None


def read_script(source: SourceFile, project: Project | None = None) -> Script:
    """A script by itself, with the modules beside it that it imports; of many in a folder, give them its project."""
    from gonogo.evidence.script_imports import Project

    return project.script(source) if project is not None else Project.around(source).entry


def project_scripts(entry: Path | str, root: Path | str) -> Sequence[Script]:
    """The entry script and all of the user's own modules under ``root`` that it imports, each once, entry first."""
    from gonogo.evidence.script_imports import Project

    return Project(Path(root), SourceFile.read(entry)).all_scripts()
