"""A single pass over a syntax tree that collects parents, scopes with their bindings, calls, and nodes by type."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any

import msgspec

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Binding(msgspec.Struct, frozen=True, eq=False):
    """One place that binds a name.

    ``kind`` is ``"import"`` (``value`` is the dotted name), ``"assign"`` (``value`` is the expression, ``path`` the
    position in it if it is unpacked), ``"with"`` (``value`` is the context manager), ``"define"`` (a function or
    class, which is ``node``), ``"parameter"`` (``node`` is the :class:`ast.arg`), or ``"other"``.
    ``node`` is what must have run for the name to be bound.
    """

    kind: str
    node: ast.AST
    value: Any = None
    path: tuple[int, ...] = ()


class Scope:
    """A module, class, function, lambda or comprehension, and the names that it binds."""

    __slots__ = ("attributes", "declared_global", "items", "names", "node", "parent", "stars")

    def __init__(self, node: ast.AST, parent: Scope | None) -> None:
        self.node = node
        self.parent = parent
        self.names: dict[str, list[Binding]] = {}
        self.attributes: dict[tuple[str, str], list[Binding]] = {}
        """By name and attribute: ``self.model = ...``."""
        self.items: dict[str, list[ast.Assign]] = {}
        """By name: ``kwargs["device_map"] = ...``."""
        self.declared_global: dict[str, type] = {}
        self.stars: list[str] = []
        """The modules of ``from m import *``."""

    def bind(self, name: str, binding: Binding) -> None:
        """Add a binding, in the module's or an outer function's scope if the name is declared global or nonlocal."""
        scope = self
        declared = self.declared_global.get(name) if self.declared_global else None
        while declared is not None and scope.parent is not None:
            scope = scope.parent
            if declared is ast.Nonlocal and name in scope.names:
                break
        found = scope.names.get(name)
        if found is None:
            scope.names[name] = [binding]
        else:
            found.append(binding)


class ScriptIndex:
    """The results of one pass over the tree. ``package`` is the base of relative imports."""

    def __init__(self, tree: ast.Module, package: str = "") -> None:
        self.tree = tree
        self.package = package
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {}
        self.calls: list[ast.Call] = []
        self.by_type: defaultdict[type, list[Any]] = defaultdict(list)
        self.module = Scope(tree, None)
        self.scopes[tree] = self.module
        # Both are filled on demand: a file of ten thousand statements is one block.
        self._blocks: dict[ast.AST, dict[ast.AST, tuple[list[ast.stmt], str, int]]] = {}
        self._leaves: dict[int, list[tuple[int, ast.If]]] = {}
        self._index_tree()

    def _index_tree(self) -> None:
        parents = self.parents
        by_type = self.by_type
        stack: list[tuple[Any, Scope]] = [(self.tree, self.module)]
        pop, push = stack.pop, stack.append
        while stack:
            node, scope = pop()
            cls = node.__class__
            by_type[cls].append(node)
            if cls in _LEAF_NODES:
                continue
            binder = _BINDERS.get(cls)
            if binder is not None:
                binder(self, node, scope)
            if cls in _SCOPE_TYPES:
                scope = self.scopes[node] = Scope(node, scope)
                if cls not in _COMPREHENSION_TYPES and cls is not ast.ClassDef:
                    _bind_parameters(node, scope)
            for name in _child_fields(cls):
                value = getattr(node, name, None)
                if value.__class__ is list:
                    for child in reversed(value):
                        if child is not None:
                            parents[child] = node
                            push((child, scope))
                elif value is not None:
                    parents[value] = node
                    push((value, scope))
        self.calls = by_type[ast.Call]

    @cached_property
    def calls_by_name(self) -> Mapping[str, list[ast.Call]]:
        """Calls of a plain name (``build(…)``, not ``module.build(…)``), by that name."""
        found: defaultdict[str, list[ast.Call]] = defaultdict(list)
        for call in self.calls:
            if isinstance(call.func, ast.Name):
                found[call.func.id].append(call)
        return found

    def scope_at(self, node: ast.AST) -> Scope:
        """The scope in which an expression is evaluated: defaults and decorators belong to the outer one."""
        scopes, parents = self.scopes, self.parents
        child, parent = node, parents.get(node)
        while parent is not None:
            scope = scopes.get(parent)
            if scope is not None and not _is_in_outer_scope(child, parent):
                return scope
            child, parent = parent, parents.get(parent)
        return self.module

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The statement that a node is or belongs to."""
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.stmt):
            current = self.parents.get(current)
        return current

    def block(self, statement: ast.AST) -> tuple[list[ast.stmt], str, int] | None:
        """The list of statements that contains this one, the name of that field in its parent, and its index there."""
        parent = self.parents.get(statement)
        if parent is not None and parent not in self._blocks:
            self._blocks[parent] = {
                child: (block, name, at)
                for name in ("body", "orelse", "finalbody")
                if isinstance(block := getattr(parent, name, None), list)
                for at, child in enumerate(block)
            }
        return self._blocks[parent].get(statement) if parent is not None else None

    def early_exits_before(self, statement: ast.stmt) -> list[ast.If]:
        """The ``if`` statements without ``else`` that end in ``return`` or similar, earlier in the same block."""
        found = self.block(statement)
        if found is None:
            return []
        block, _, here = found
        leaves = self._leaves.get(id(block))
        if leaves is None:
            leaves = self._leaves[id(block)] = [
                (at, each)
                for at, each in enumerate(block)
                if isinstance(each, ast.If) and not each.orelse and isinstance(each.body[-1], _EXIT_STATEMENTS)
            ]
        return [each for at, each in leaves if at < here]


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, in the order of the file: :func:`ast.walk` in two thirds of its time, without markers
    such as ``Load`` and without the names that an import lists."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        cls: Any = node.__class__
        if cls in _LEAF_NODES:
            continue
        for name in _child_fields(cls):
            value = getattr(node, name, None)
            if value.__class__ is list:
                stack.extend(child for child in reversed(value) if child is not None)
            elif value is not None:
                stack.append(value)


def start_position(node: Any) -> tuple[int, int]:
    """Start of a node: (line, column)."""
    return (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))


def end_position(node: Any) -> tuple[int, int]:
    """End of a node: (line, column)."""
    return (getattr(node, "end_lineno", None) or 0, getattr(node, "end_col_offset", None) or 0)


def _is_in_outer_scope(child: ast.AST, scope_node: ast.AST) -> bool:
    if isinstance(scope_node, ast.Lambda):
        return child is scope_node.args
    return not isinstance(child, ast.stmt) and not isinstance(scope_node, (ast.Module, *COMPREHENSIONS))


def bind_target(scope: Scope, target: ast.AST, kind: str, node: ast.AST, value: Any, path: tuple[int, ...]) -> None:
    """Bind the names in an assignment's target."""
    if isinstance(target, ast.Name):
        scope.bind(target.id, Binding(kind, node, value, path))
    elif isinstance(target, ast.Attribute):
        if isinstance(target.value, ast.Name):
            key = (target.value.id, target.attr)
            scope.attributes.setdefault(key, []).append(Binding(kind, node, value, path))
    elif isinstance(target, (ast.Tuple, ast.List)):
        paired = (
            value.elts
            if not path and isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            else None
        )
        starred = any(isinstance(each, ast.Starred) for each in (*target.elts, *(paired or ())))
        for i, each in enumerate(target.elts):
            if starred and i and any(isinstance(other, ast.Starred) for other in target.elts[: i + 1]):
                bind_target(scope, each, "other", node, None, ())
            elif paired is not None and not starred:
                bind_target(scope, each, kind, node, paired[i], ())
            else:
                bind_target(scope, each, kind, node, value, (*path, i))
    elif isinstance(target, ast.Starred):
        bind_target(scope, target.value, "other", node, None, ())
    elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and isinstance(node, ast.Assign):
        scope.items.setdefault(target.value.id, []).append(node)


def _bind_parameters(node: Any, scope: Scope) -> None:
    arguments = node.args
    for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        scope.bind(arg.arg, Binding("parameter", arg, node))
    for arg in (arguments.vararg, arguments.kwarg):
        if arg is not None:
            scope.bind(arg.arg, Binding("other", arg, node))


def _index_assignment(index: ScriptIndex, node: ast.Assign, scope: Scope) -> None:
    for target in node.targets:
        bind_target(scope, target, "assign", node, node.value, ())


def _index_annotated_assignment(index: ScriptIndex, node: ast.AnnAssign, scope: Scope) -> None:
    if node.value is not None:
        bind_target(scope, node.target, "assign", node, node.value, ())


def _index_augmented_assignment(index: ScriptIndex, node: ast.AugAssign, scope: Scope) -> None:
    bind_target(scope, node.target, "other", node, None, ())


def _index_walrus(index: ScriptIndex, node: ast.NamedExpr, scope: Scope) -> None:
    while isinstance(scope.node, COMPREHENSIONS) and scope.parent is not None:
        scope = scope.parent
    bind_target(scope, node.target, "assign", node, node.value, ())


def _index_loop(index: ScriptIndex, node: Any, scope: Scope) -> None:
    bind_target(scope, node.target, "other", node.target, None, ())


def _index_with(index: ScriptIndex, node: Any, scope: Scope) -> None:
    for item in node.items:
        if item.optional_vars is not None:
            bind_target(scope, item.optional_vars, "with", item.optional_vars, item.context_expr, ())


def _index_definition(index: ScriptIndex, node: Any, scope: Scope) -> None:
    scope.bind(node.name, Binding("define", node))


def _index_named_expression(index: ScriptIndex, node: Any, scope: Scope) -> None:
    name = getattr(node, "name", None) or getattr(node, "rest", None)
    if isinstance(name, str):
        scope.bind(name, Binding("other", node))


def _index_delete(index: ScriptIndex, node: ast.Delete, scope: Scope) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            scope.bind(target.id, Binding("other", node))


def _index_global(index: ScriptIndex, node: Any, scope: Scope) -> None:
    for name in node.names:
        scope.declared_global[name] = node.__class__


def _index_import(index: ScriptIndex, node: ast.Import, scope: Scope) -> None:
    for alias in node.names:
        top = alias.name.partition(".")[0]
        scope.bind(alias.asname or top, Binding("import", node, alias.name if alias.asname else top))


def _index_import_from(index: ScriptIndex, node: ast.ImportFrom, scope: Scope) -> None:
    module = absolute_module(node, index.package)
    for alias in node.names:
        if alias.name == "*":
            scope.stars.append(module)
        else:
            name = f"{module}.{alias.name}" if module else alias.name
            scope.bind(alias.asname or alias.name, Binding("import", node, name))


def absolute_module(node: ast.ImportFrom, package: str) -> str:
    """The absolute module name of a ``from`` import, resolved if it is relative."""
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    parts = parts[: len(parts) - (node.level - 1)] if node.level > 1 else parts
    return ".".join([*parts, node.module] if node.module else parts)


_BINDERS: dict[type, Any] = {
    ast.Assign: _index_assignment,
    ast.AnnAssign: _index_annotated_assignment,
    ast.AugAssign: _index_augmented_assignment,
    ast.NamedExpr: _index_walrus,
    ast.For: _index_loop,
    ast.AsyncFor: _index_loop,
    ast.comprehension: _index_loop,
    ast.With: _index_with,
    ast.AsyncWith: _index_with,
    ast.FunctionDef: _index_definition,
    ast.AsyncFunctionDef: _index_definition,
    ast.ClassDef: _index_definition,
    ast.ExceptHandler: _index_named_expression,
    ast.MatchAs: _index_named_expression,
    ast.MatchStar: _index_named_expression,
    ast.MatchMapping: _index_named_expression,
    ast.Delete: _index_delete,
    ast.Global: _index_global,
    ast.Nonlocal: _index_global,
    ast.Import: _index_import,
    ast.ImportFrom: _index_import_from,
}
_COMPREHENSION_TYPES = frozenset(COMPREHENSIONS)
_SCOPE_TYPES = frozenset({*FUNCTIONS, ast.Lambda, ast.ClassDef, *COMPREHENSIONS})
_EXIT_STATEMENTS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_LEAF_NODES = frozenset({ast.Name, ast.Constant, ast.Pass, ast.Break, ast.Continue, ast.alias})
# Fields without child nodes: text, numbers, and markers such as Load and Add, which all nodes share.
_NON_NODE_FIELDS = frozenset(
    {
        *("ctx", "op", "ops", "id", "attr", "arg", "name", "asname", "module", "level", "rest", "kwd_attrs", "kind"),
        *("type_comment", "type_ignores", "conversion", "is_async", "simple", "lineno", "str"),
    }
)
_LEAF_STATEMENTS = (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.MatchSingleton)


@cache
def _child_fields(cls: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a node that contain other nodes, in reverse; empty for names, and for ``case True:``."""
    if cls in _LEAF_STATEMENTS:
        return ()
    typed = ("name",) if cls.__name__ == "TypeAlias" else ()  # its name is a node, unlike all others
    return (*reversed([name for name in cls._fields if name not in _NON_NODE_FIELDS]), *typed)
