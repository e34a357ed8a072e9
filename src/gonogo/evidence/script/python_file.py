"""One Python file: its syntax tree, the resolution of names and values, the context of nodes, and edits."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import Protocol, TypeVar

from gonogo.evidence.field import Field
from gonogo.evidence.script.edits import ScriptEditor
from gonogo.evidence.script.flow import bound_to
from gonogo.evidence.script.names import NameResolver, ProjectNames
from gonogo.evidence.script.node_context import contexts_around, tests_around
from gonogo.evidence.script.parse import ParsedSource, ScriptProblem, gc_disabled, parse
from gonogo.evidence.script.syntax_index import FUNCTIONS, LOOPS, Function, ScriptIndex
from gonogo.evidence.script.values import Value, ValueResolver
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Edit

_Node = TypeVar("_Node", bound=ast.AST)


class HasCallNode(Protocol):
    """An object that wraps a call node."""

    @property
    def node(self) -> ast.Call:
        """The call."""


class ProjectModules(ProjectNames, Protocol):
    """A file's view of its project's other files."""

    def value(self, dotted: str) -> Value | None:
        """The value of a constant in another file."""

    def file_of(self, resolver: NameResolver) -> PythonFile | None:
        """The file to which a resolver belongs."""


class PythonFile:
    """One Python file. If it has a ``problem``, ``tree`` is None and all else behaves as for an empty file."""

    def __init__(self, source: SourceFile, package: str = "", module: str = "") -> None:
        self.source = source
        self.package = package
        self.module = module
        self.elsewhere: ProjectModules | None = None
        self.named_in: dict[ast.AST, frozenset[tuple[str, bool]]] = {}
        """What pieces of the tree name, remembered for :mod:`gonogo.evidence.script.reachability`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def use_path_of(self, source: SourceFile) -> None:
        """Take over the path of another source with the same bytes, before anything has been reported."""
        self.source = source
        self.__dict__.pop("_editor", None)

    @property
    def path(self) -> str:
        """The path as shown to users."""
        return self.source.path

    @cached_property
    def parsed(self) -> ParsedSource:
        """The syntax tree, or the problem with the file."""
        return parse(self.source)

    @property
    def tree(self) -> ast.Module | None:
        """The syntax tree."""
        return self.parsed.tree

    @property
    def problem(self) -> ScriptProblem | None:
        """Why there is no syntax tree, or None."""
        return self.parsed.problem

    @cached_property
    def index(self) -> ScriptIndex:
        """The syntax index: parents and scopes of all nodes."""
        with gc_disabled():
            return ScriptIndex(self.tree or ast.Module(body=[], type_ignores=[]), self.package)

    @cached_property
    def names(self) -> NameResolver:
        """Resolves names to qualified names."""
        return NameResolver(self.index, self.elsewhere, self.module)

    @cached_property
    def values(self) -> ValueResolver:
        """Evaluates expressions."""
        return ValueResolver(self.names, self._imported_value)

    def _imported_value(self, name: str) -> Value | None:
        return self.elsewhere.value(name) if self.elsewhere is not None else None

    # Names and values

    def qualified(self, node: ast.AST) -> str | None:
        """The qualified name of a class, function, module or method; None if unknown."""
        names = self._without_own_module(self.names.names(node))
        return names[0] if names else None

    def _without_own_module(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Names as the script itself uses them: without its own module's name."""
        if not names or not self.module or not any(name.startswith(self.module) for name in names):
            return names
        prefix = f"{self.module}."
        return tuple(name.removeprefix(prefix) for name in names)

    def kind_of(self, node: ast.AST) -> str | None:
        """The qualified name of the call or class that created the object at a node.

        ``deepspeed.initialize`` for the engine, ``transformers.AutoModelForCausalLM.from_pretrained`` for a model; an
        element of an unpacked tuple is ``name[1]`` (except the engine itself); an attribute is ``name.attribute``.
        """
        kinds = self.kinds_of(node)
        return kinds[0] if kinds else None

    def kinds_of(self, node: ast.AST) -> tuple[str, ...]:
        """Like :meth:`kind_of`, with the names of the base classes of a class of the project."""
        return self._without_own_module(self.names.kinds(node))

    def field(self, node: ast.expr) -> Field:
        """The value of an expression of constants, and of names that hold one; otherwise unknown, with the reason."""
        return self.values.field(node, self.place(node))

    def bound_to(self, node: ast.expr) -> ast.expr:
        """The expression that a name or ``self.x`` certainly holds, followed from name to name; else the node itself.

        ``params`` is ``[p for p in m.parameters()]`` if nothing else binds it.
        """
        return bound_to(self.index, node)

    def environment_variable(self, node: ast.AST) -> str | None:
        """The environment variable that an expression reads: ``int(os.environ["LOCAL_RANK"])``."""
        return self.values.environment_variable(node)

    # Contents

    def nodes(self, *types: type[_Node]) -> Iterator[_Node]:
        """The nodes of these types, in the order of the file."""
        for each in types:
            yield from self.index.by_type.get(each, ())

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """All functions and methods."""
        return tuple(self.nodes(ast.FunctionDef, ast.AsyncFunctionDef))

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

    # Context of a node

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The parent of this node."""
        return self.index.parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The ancestors of this node, the nearest first."""
        parents = self.index.parents
        current = parents.get(node)
        while current is not None:
            yield current
            current = parents.get(current)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The statement that a node is or belongs to."""
        return self.index.statement(node)

    def enclosing_function(self, node: ast.AST) -> Function | None:
        """The function that contains a node."""
        return next((each for each in self.ancestors(node) if isinstance(each, FUNCTIONS)), None)

    def enclosing_loop(self, node: ast.AST) -> ast.For | ast.AsyncFor | ast.While | None:
        """The innermost loop around a node, within the same function."""
        for each in self.ancestors(node):
            if isinstance(each, (*FUNCTIONS, ast.Lambda)):
                return None
            if isinstance(each, LOOPS):
                return each
        return None

    def with_contexts(self, node: ast.AST) -> tuple[str, ...]:
        """The qualified names of the ``with`` items around a node and of its function's decorators, nearest first."""
        return contexts_around(self.names, node)

    def guarded_by(self, node: ast.AST) -> tuple[ast.expr, ...]:
        """The tests that must hold for a node to run, within its function; for an ``else`` it is ``not test``."""
        return tests_around(self.index, node)

    # Places, and edits: None if a change can't be made without affecting more than it should

    @property
    def editable(self) -> bool:
        """Whether edits can be made: only in UTF-8 files with consistent line ends."""
        data = self.source.data
        return (
            self.parsed.tree is not None
            and self.source.writable
            and self.parsed.encoding is None
            and (b"\r" not in data or data.count(b"\r") == data.count(b"\r\n") == data.count(b"\n"))
        )

    def place(self, node: ast.AST) -> Place:
        """The span of a node."""
        source = self.source
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None)
        if self.parsed.encoding is not None:
            column = self._column_in_file_encoding(line, column)
            end_column = self._column_in_file_encoding(end_line, end_column) if end_column is not None else None
        start = source.offset(line, column)
        return source.place(start, source.offset(end_line, end_column) if end_column is not None else start)

    def _column_in_file_encoding(self, line: int, column: int) -> int:
        """Convert a column in UTF-8 to one in the file's own encoding."""
        encoding = self.parsed.encoding or "utf-8"
        text = self.source.line_bytes(line).decode(encoding, "replace").encode("utf-8")
        return len(text[:column].decode("utf-8", "ignore").encode(encoding, "replace"))

    def first_line_place(self, node: ast.AST) -> Place:
        """The first line of a node: what a report should underline for a class or a loop."""
        place = self.place(node)
        end = self.source.data.find(b"\n", place.start)
        return place if end < 0 or end >= place.end else self.source.place(place.start, end)

    @cached_property
    def _editor(self) -> ScriptEditor | None:
        return ScriptEditor(self.source, self.index) if self.editable else None

    def removing_keyword(self, call: ast.Call | HasCallNode, name: str) -> Edit | None:
        """An edit that removes a keyword argument from a call; None if it isn't written in the call itself."""
        node = call if isinstance(call, ast.Call) else call.node
        keyword = next((each for each in node.keywords if each.arg == name), None)
        return self._editor.remove_keyword(node, keyword) if self._editor is not None and keyword is not None else None

    def setting_keyword(self, call: ast.Call | HasCallNode, name: str, source_text: str) -> Edit | None:
        """An edit that adds a keyword argument to a call, or replaces its value."""
        node = call if isinstance(call, ast.Call) else call.node
        if self._editor is None:
            return None
        keyword = next((each for each in node.keywords if each.arg == name), None)
        if keyword is None:
            return self._editor.add_keyword(node, name, source_text)
        return self.replacing(keyword, f"{name}={source_text}")

    def removing_statement(self, node: ast.stmt) -> Edit | None:
        """An edit that removes a statement and the comments directly above it; an emptied block gets ``pass``."""
        return self._editor.remove_statement(node) if self._editor is not None else None

    def replacing(self, node: ast.AST, text: str) -> Edit | None:
        """An edit that replaces a node by other source text."""
        return self.place(node).edit(text) if self._editor is not None else None

    def inserting_before(self, statement: ast.stmt, text: str) -> Edit | None:
        """An edit that inserts a statement before another, at its indentation."""
        return self._editor.insert_before(statement, text) if self._editor is not None else None

    def inserting_after(self, statement: ast.stmt, text: str) -> Edit | None:
        """An edit that inserts a statement after another, at its indentation."""
        return self._editor.insert_after(statement, text) if self._editor is not None else None

    def inserting_import(self, text: str) -> Edit | None:
        """An edit that adds an import to those at the top of the script."""
        return self._editor.insert_import(text) if self._editor is not None else None
