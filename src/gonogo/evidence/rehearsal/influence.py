"""Static analysis: whether an event at one line (a value read, a file missing) can affect another line.

Names are followed through the given files: what a statement binds, what is computed from that, what a condition on it
guards, what a function that uses it returns. This over-approximates what can be affected, as far as names show it: it
serves to establish that something is *not* affected.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

_FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOP_NODES = (ast.For, ast.AsyncFor, ast.While)
_MAX_BYTES = 1 << 20
_MAX_FILES = 40
_MAX_ROUNDS = 30


class ProgramLine(NamedTuple):
    """A file's path and a line number."""

    path: str
    line: int


class Entity(NamedTuple):
    """A variable of the analyzed program: a local or global name, an attribute, a method's return value."""

    kind: str
    owner: int
    name: str


class _Statement:
    """A statement, with the entities that it reads and binds."""

    __slots__ = ("binds", "block", "calls", "function", "node", "owner", "parent", "reads")

    def __init__(self, node: ast.stmt, parent: _Statement | None, block: list[ast.stmt], function: _Function) -> None:
        self.node = node
        self.parent = parent
        self.block = block
        self.function = function
        self.owner = id(function)
        self.reads: set[Entity] = set()
        self.binds: set[Entity] = set()
        self.calls: list[tuple[ast.Call, str]] = []


class _Function:
    """A function, or a module's top level, with its local names."""

    def __init__(self, node: ast.AST, outer: _Function | None, in_class: bool) -> None:
        self.node = node
        self.outer = outer
        self.in_class = in_class
        self.locals: set[str] = set()
        self.parameters: list[str] = []
        if isinstance(node, _FUNCTION_NODES):
            arguments = node.args
            self.parameters = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
            every = [*self.parameters, *(one.arg for one in arguments.kwonlyargs)]
            every += [one.arg for one in (arguments.vararg, arguments.kwarg) if one is not None]
            self.locals = set(every)

    @property
    def name(self) -> str:
        return self.node.name if isinstance(self.node, _FUNCTION_NODES) else ""

    def entity(self, name: str) -> Entity:
        """The entity that a name refers to in this function."""
        here: _Function | None = self
        while here is not None:
            if name in here.locals and here.outer is not None:
                return Entity("local", id(here), name)
            here = here.outer
        return Entity("global", 0, name)


class _FileStatements:
    """The statements of a file."""

    def __init__(self, tree: ast.Module) -> None:
        self.statements: list[_Statement] = []
        self.of: dict[int, _Statement] = {}
        self.functions: dict[str, list[_Function]] = {}
        self.classes: set[str] = set()
        imported = {
            (alias.asname or alias.name).partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        self._collect_statements(tree.body, None, _Function(tree, None, False), in_class=False)
        for statement in self.statements:
            _analyze_statement(statement, imported)

    def _collect_statements(
        self, block: list[ast.stmt], parent: _Statement | None, function: _Function, *, in_class: bool
    ) -> None:
        for node in block:
            statement = _Statement(node, parent, block, function)
            self.statements.append(statement)
            self.of[id(node)] = statement
            if isinstance(node, _FUNCTION_NODES):
                made = _Function(node, function, in_class)
                made.locals |= _local_names(node.body)
                self.functions.setdefault(node.name, []).append(made)
                if not in_class:
                    function.locals.add(node.name)
                self._collect_statements(node.body, None, made, in_class=False)
            elif isinstance(node, ast.ClassDef):
                self.classes.add(node.name)
                self._collect_statements(node.body, None, function, in_class=True)
            else:
                for inner in blocks_of(node):
                    self._collect_statements(inner, statement, function, in_class=in_class)

    def innermost_statement_at(self, line: int) -> _Statement | None:
        """The innermost statement that spans the line."""
        found = None
        for statement in self.statements:
            node = statement.node
            if node.lineno <= line <= (node.end_lineno or node.lineno) and (
                found is None or node.lineno >= found.node.lineno
            ):
                found = statement
        return found


def blocks_of(node: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a compound statement."""
    blocks = [getattr(node, name, []) or [] for name in ("body", "orelse", "finalbody")]
    blocks += [part.body for name in ("handlers", "cases") for part in getattr(node, name, []) or []]
    return [block for block in blocks if block and isinstance(block[0], ast.stmt)]


def _local_names(body: list[ast.stmt]) -> set[str]:
    found: set[str] = set()
    declared: set[str] = set()
    todo: list[ast.AST] = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, (*_FUNCTION_NODES, ast.ClassDef)):
            found.add(node.name)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            declared.update(node.names)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        if isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
        todo.extend(ast.iter_child_nodes(node))
    return found - declared


def _own_expressions(node: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement, without the statements in its blocks."""
    if isinstance(node, (*_FUNCTION_NODES, ast.ClassDef)):
        return
    todo: list[ast.AST] = [
        child for child in ast.iter_child_nodes(node) if not isinstance(child, (ast.stmt, ast.ExceptHandler))
    ]
    while todo:
        child = todo.pop()
        if isinstance(child, ast.match_case):
            todo += [one for one in ast.iter_child_nodes(child) if not isinstance(one, ast.stmt)]
            continue
        yield child
        todo.extend(ast.iter_child_nodes(child))


def _base_entity(node: ast.expr, function: _Function) -> Entity | None:
    """The name or attribute that ``a[i]`` or ``a.b.c`` refers to; None if it isn't tracked."""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    if isinstance(node, ast.Name):
        return function.entity(node.id)
    if isinstance(node, ast.Attribute):
        return Entity("attribute", 0, node.attr)
    return None


def _analyze_statement(statement: _Statement, imported: set[str]) -> None:
    function, node = statement.function, statement.node
    called: set[int] = set()
    for part in _own_expressions(node):
        if isinstance(part, ast.Call):
            func = part.func
            if isinstance(func, ast.Attribute):
                called.add(id(func))
                statement.reads.add(Entity("method", 0, func.attr))
                statement.calls.append((part, func.attr))
                if isinstance(func.value, ast.Name) and func.value.id == "self":
                    statement.reads.add(Entity("attribute", 0, func.attr))
            elif isinstance(func, ast.Name):
                statement.calls.append((part, func.id))
        if isinstance(part, ast.Name):
            entity = function.entity(part.id)
            (statement.reads if isinstance(part.ctx, ast.Load) else statement.binds).add(entity)
        elif isinstance(part, ast.Attribute):
            if not isinstance(part.ctx, ast.Load):
                statement.binds.add(Entity("attribute", 0, part.attr))
            elif id(part) not in called:
                statement.reads.add(Entity("attribute", 0, part.attr))
        elif isinstance(part, ast.Subscript) and not isinstance(part.ctx, ast.Load):
            if (base := _base_entity(part, function)) is not None:
                statement.binds.add(base)
        elif isinstance(part, ast.alias):
            statement.binds.add(function.entity((part.asname or part.name).partition(".")[0]))
    if isinstance(node, ast.AugAssign):
        statement.reads |= statement.binds
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        receiver = node.value.func.value  # `rows.append(row)` changes rows
        base = _base_entity(receiver, function)
        if base is not None and base.name not in {"self", "cls", *imported}:
            statement.binds.add(base)
    if isinstance(node, (ast.Return, *_type_if_it_yields(node))) and function.name:
        statement.binds |= _return_entities(function)


def _type_if_it_yields(node: ast.stmt) -> tuple[type, ...]:
    """The statement's type if it yields, as a key for generators."""
    return (type(node),) if any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in _own_expressions(node)) else ()


def _return_entities(function: _Function) -> set[Entity]:
    """The variables that a function returns."""
    if function.in_class:
        return {Entity("method", 0, function.name), Entity("attribute", 0, function.name)}
    outer = function.outer
    return {outer.entity(function.name) if outer is not None else Entity("global", 0, function.name)}


@lru_cache(maxsize=64)
def _parse_file(path: str, _state: tuple[int, int]) -> _FileStatements | None:
    try:
        with open(path, "rb") as file:
            return _FileStatements(ast.parse(file.read()))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def statements_of_file(path: str) -> _FileStatements | None:
    """The statements of a file; None if it can't be parsed as Python."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return None
    return _parse_file(path, (state.st_mtime_ns, state.st_size)) if state.st_size <= _MAX_BYTES else None


class Influence:
    """All statements whose execution or values the statement at ``start`` may affect.

    ``may_raise``: the statement may have raised an exception that its ``try`` handled. A ``break``, ``continue`` or
    ``return`` that depends on it affects the statements after it; with ``rounds`` also the whole loop, whose number
    of iterations then changes.
    """

    def __init__(
        self, start: ProgramLine, other_paths: Iterable[str] = (), *, may_raise: bool = False, rounds: bool = False
    ) -> None:
        paths = list(dict.fromkeys([start.path, *other_paths]))[:_MAX_FILES]
        self._files = {path: file for path in paths if (file := statements_of_file(path)) is not None}
        self._held: set[Entity] = set()
        self._decided: set[int] = set()
        self._rounds = rounds
        self._functions: dict[str, list[_Function]] = {}
        for file in self._files.values():
            for name, functions in file.functions.items():
                self._functions.setdefault(name, []).extend(functions)
            for name in file.classes:
                self._functions.setdefault(name, []).extend(file.functions.get("__init__", []))
        first = self._files[start.path].innermost_statement_at(start.line) if start.path in self._files else None
        self._first = first
        if first is not None:
            self._seed_influence(first, may_raise)
            self._spread_influence()

    def _seed_influence(self, statement: _Statement, may_raise: bool) -> None:
        """Mark what the first statement assigns, and what runs differently if it raises."""
        self._propagate_through(statement)
        call = statement.node.value if isinstance(statement.node, ast.Expr) else None
        for argument in call.args if isinstance(call, ast.Call) else ():  # the call may have modified its argument
            if (base := _base_entity(argument, statement.function)) is not None and isinstance(argument, ast.Name):
                self._held.add(base)
        inner: _Statement = statement
        outer = statement.parent
        while may_raise and outer is not None:
            node = outer.node
            if isinstance(node, ast.Try) and node.handlers and any(one is inner.node for one in node.body):
                for block in (node.body, node.orelse, *(handler.body for handler in node.handlers)):
                    self._mark_conditional_block(block)
                    self._apply_early_exit(outer, block)
                return
            inner, outer = outer, outer.parent

    def _spread_influence(self) -> None:
        """Propagate marks through all statements until nothing changes."""
        statements = [statement for file in self._files.values() for statement in file.statements]
        for _ in range(_MAX_ROUNDS):
            before = len(self._held), len(self._decided)
            for statement in statements:
                if id(statement.node) in self._decided or statement.reads & self._held:
                    self._propagate_through(statement)
            if before == (len(self._held), len(self._decided)):
                return

    def _propagate_through(self, statement: _Statement) -> None:
        """Mark what a statement assigns if it reads an affected value."""
        node = statement.node
        self._held |= statement.binds
        for call, name in statement.calls:
            self._mark_called_parameters(call, name, statement)
        if isinstance(node, (ast.If, *_LOOP_NODES, ast.Match)):
            for block in blocks_of(node):
                self._mark_conditional_block(block)
                self._apply_early_exit(statement, block)

    def _mark_called_parameters(self, call: ast.Call, name: str, statement: _Statement) -> None:
        """Mark the parameters of functions that are called with an affected argument."""
        for function in self._functions.get(name, ()):
            offset = 1 if function.in_class else 0
            for number, argument in enumerate(call.args):
                if self._reads_influenced(argument, statement) and number + offset < len(function.parameters):
                    self._held.add(Entity("local", id(function), function.parameters[number + offset]))
            for keyword in call.keywords:
                if keyword.arg in function.locals and self._reads_influenced(keyword.value, statement):
                    self._held.add(Entity("local", id(function), str(keyword.arg)))
        self._mark_callback_parameters(call, statement)

    def _mark_callback_parameters(self, call: ast.Call, statement: _Statement) -> None:
        """Mark the parameters of functions that are given along with an affected value: ``rows.map(parse)``."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        named = [(argument, functions) for argument in given if (functions := self._functions_named_in(argument))]
        if not named:
            return
        receiver = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        for argument, functions in named:
            if any(self._reads_influenced(one, statement) for one in (*receiver, *given) if one is not argument):
                for function in functions:
                    for parameter in function.parameters[1 if function.in_class else 0 :]:
                        self._held.add(Entity("local", id(function), parameter))

    def _functions_named_in(self, argument: ast.expr) -> list[_Function]:
        """The functions that an argument names: ``parse``, ``self.parse``, ``partial(parse, …)``."""
        if isinstance(argument, ast.Call) and argument.args:  # functools.partial
            argument = argument.args[0]
        name = argument.attr if isinstance(argument, ast.Attribute) else getattr(argument, "id", "")
        return self._functions.get(name, [])

    def _reads_influenced(self, node: ast.expr, statement: _Statement) -> bool:
        if statement is self._first:
            return True
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and statement.function.entity(part.id) in self._held:
                return True
            if isinstance(part, ast.Attribute) and (
                Entity("attribute", 0, part.attr) in self._held or Entity("method", 0, part.attr) in self._held
            ):
                return True
        return False

    def _mark_conditional_block(self, block: Sequence[ast.stmt]) -> None:
        """Mark the names that a block assigns, since whether it runs is affected."""
        for statement in block:
            self._decided.add(id(statement))
            for inner in blocks_of(statement) if not isinstance(statement, (*_FUNCTION_NODES, ast.ClassDef)) else ():
                self._mark_conditional_block(inner)

    def _apply_early_exit(self, statement: _Statement, block: Sequence[ast.stmt]) -> None:
        """If an affected block leaves its loop or function, mark the statements after it."""
        last = block[-1] if block else None
        if isinstance(last, ast.Return):
            self._held |= _return_entities(statement.function) if statement.function.name else set()
            self._mark_following(statement, to_loop=False)
        elif isinstance(last, (ast.Break, ast.Continue)):
            self._mark_following(statement, to_loop=True)

    def _mark_following(self, statement: _Statement, *, to_loop: bool) -> None:
        here: _Statement | None = statement
        while here is not None:
            position = next((n for n, one in enumerate(here.block) if one is here.node), len(here.block))
            self._mark_conditional_block(here.block[position + 1 :])
            here = here.parent
            if to_loop and here is not None and isinstance(here.node, _LOOP_NODES):
                if self._rounds:
                    self._mark_conditional_block(here.node.body)
                    position = next((n for n, one in enumerate(here.block) if one is here.node), len(here.block))
                    self._mark_conditional_block(here.block[position + 1 :])
                return

    def decides(self, place: ProgramLine) -> bool:
        """Whether reaching the statement at this line depends on ``start``."""
        statement = self._statement_at(place)
        while statement is not None:
            if id(statement.node) in self._decided:
                return True
            statement = statement.parent
        return False

    def reads_affected_value(self, place: ProgramLine) -> bool:
        """Whether the statement at this line reads an affected value, or is ``start`` itself."""
        statement = self._statement_at(place)
        return statement is not None and (statement is self._first or bool(statement.reads & self._held))

    def is_influenced(self, place: ProgramLine) -> bool:
        """Whether the statement at this line is affected in either way, or is ``start`` itself."""
        return self.reads_affected_value(place) or self.decides(place)

    def _statement_at(self, place: ProgramLine) -> _Statement | None:
        file = self._files.get(place.path)
        return file.innermost_statement_at(place.line) if file is not None else None
