"""Which bindings of a name may reach a use of it: the last one that always executes, and later ones that may."""

from __future__ import annotations

import ast

from gonogo.evidence.script.nodes import is_static_method
from gonogo.evidence.script.syntax_index import (
    COMPREHENSIONS,
    FUNCTIONS,
    LOOPS,
    Binding,
    Scope,
    ScriptIndex,
    end_position,
    start_position,
)

_SCOPE_NODES = (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module)


def scope_binding(index: ScriptIndex, name: str, node: ast.AST) -> Scope | None:
    """The scope to which ``name`` refers at ``node``; None if no scope of the script binds it."""
    scope: Scope | None = index.scope_at(node)
    first = True
    while scope is not None:
        if name in scope.declared_global and scope.declared_global[name] is ast.Global:
            return index.module if name in index.module.names else None
        if name in scope.names and (first or not isinstance(scope.node, ast.ClassDef)):
            return scope
        first = first and isinstance(scope.node, COMPREHENSIONS)
        scope = scope.parent
    return None


_MAX_BINDINGS = 200
"""Maximum number of bindings of one name in one scope; beyond it, the name's value counts as unknown."""


def reaching_bindings(index: ScriptIndex, bindings: list[Binding], scope: Scope, use: ast.AST) -> list[Binding]:
    """The bindings of one name in ``scope`` that may reach a use, the latest first.

    Within the scope's own code these are the last binding that always executes, and those after it that may execute.
    From other functions, any binding may reach the use.
    """
    if len(bindings) == 1:
        return bindings
    if len(bindings) > _MAX_BINDINGS:
        return []  # quadratic: each use would be compared with all bindings
    if _enclosing_scope_node(index, use) is not scope.node:
        return bindings
    at = start_position(use)
    before = [binding for binding in bindings if end_position(binding.node) <= at]
    found: list[Binding] = []
    surely: Binding | None = None
    for binding in reversed(before):
        found.append(binding)
        if has_always_run_before(index, binding.node, use):
            surely = binding
            break
    if len(before) < len(bindings):
        around = _loops_around(index, use)
        if surely is not None:
            around = [loop for loop in around if not is_within(index, surely.node, loop)]
        known = set(map(id, before)) if around else ()
        found += [
            binding
            for binding in (bindings if around else ())
            if id(binding) not in known and any(is_within(index, binding.node, loop) for loop in around)
        ]
    return found


def has_always_run_before(index: ScriptIndex, earlier: ast.AST, use: ast.AST) -> bool:
    """Whether code before ``use`` in the same function has always executed when ``use`` does."""
    current: ast.AST | None = earlier if isinstance(earlier, ast.arg) else index.statement(earlier) or earlier
    while current is not None:
        parent = index.parents.get(current)
        if parent is None or isinstance(parent, _SCOPE_NODES) or isinstance(current, ast.arg):
            return True
        if isinstance(parent, (ast.With, ast.AsyncWith)):
            current = parent
            continue
        if isinstance(parent, ast.Try) and (
            _contains_node(parent.body, current)
            or _contains_node(parent.finalbody, current)
            or _contains_node(parent.orelse, current)
        ):
            current = parent
            continue
        if isinstance(parent, (ast.For, ast.AsyncFor)) and (earlier is parent.target or current is parent.target):
            return is_within(index, use, parent)
        found = index.block(current)
        return found is not None and _is_in_block(index, use, found[0])
    return True


def is_within(index: ScriptIndex, node: ast.AST, ancestor: ast.AST) -> bool:
    """Whether a node is ``ancestor`` or inside it."""
    current: ast.AST | None = node
    while current is not None:
        if current is ancestor:
            return True
        current = index.parents.get(current)
    return False


def _enclosing_scope_node(index: ScriptIndex, node: ast.AST) -> ast.AST:
    scope: Scope | None = index.scope_at(node)
    while scope is not None and isinstance(scope.node, COMPREHENSIONS):
        scope = scope.parent
    return scope.node if scope is not None else index.tree


def _is_in_block(index: ScriptIndex, node: ast.AST, block: list[ast.stmt]) -> bool:
    current: ast.AST | None = node
    while current is not None:
        found = index.block(current)
        if found is not None and found[0] is block:
            return True
        current = index.parents.get(current)
    return False


def _contains_node(block: list[ast.stmt], node: ast.AST) -> bool:
    return any(each is node for each in block)


def _loops_around(index: ScriptIndex, node: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    current = index.parents.get(node)
    while current is not None and not isinstance(current, _SCOPE_NODES):
        if isinstance(current, LOOPS):
            found.append(current)
        current = index.parents.get(current)
    return found


def bound_to(index: ScriptIndex, node: ast.expr) -> ast.expr:
    """The expression that a name or ``self.x`` certainly holds, followed from name to name; else the node itself."""
    seen: set[ast.expr] = set()
    while node not in seen:
        seen.add(node)
        found: list[Binding] = []
        if isinstance(node, ast.Name) and (scope := scope_binding(index, node.id, node)) is not None:
            found = reaching_bindings(index, scope.names[node.id], scope, node)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = class_of_self(index, node.value)
            found = self_attribute_bindings(index, owner).get(node.attr, []) if owner is not None else []
        if len(found) != 1 or found[0].kind != "assign" or found[0].path:
            break
        node = found[0].value
    return node


def resolve_function(index: ScriptIndex, func: ast.expr) -> ast.AST | None:
    """The function of this file that a name refers to, if nothing else binds the name."""
    scope = scope_binding(index, func.id, func) if isinstance(func, ast.Name) else None
    if scope is not None and isinstance(func, ast.Name) and len(scope.names[func.id]) == 1:
        binding = scope.names[func.id][0]
        if binding.kind == "define" and isinstance(binding.node, FUNCTIONS):
            return binding.node
    return None


def class_of_self(index: ScriptIndex, name: ast.Name) -> ast.ClassDef | None:
    """The class of which a name is the instance, if it is the first parameter of a method."""
    scope = scope_binding(index, name.id, name)
    if scope is None or not isinstance(scope.node, FUNCTIONS):
        return None
    owner = index.parents.get(scope.node)
    arguments = [*scope.node.args.posonlyargs, *scope.node.args.args]
    if isinstance(owner, ast.ClassDef) and arguments and arguments[0].arg == name.id:
        return owner if not is_static_method(scope.node) else None
    return None


def self_attribute_bindings(index: ScriptIndex, owner: ast.ClassDef) -> dict[str, list[Binding]]:
    """The attributes that a class's methods set on their first parameter, with their bindings."""
    found: dict[str, list[Binding]] = {}
    for method in owner.body:
        scope = index.scopes.get(method)
        if scope is None or not isinstance(method, FUNCTIONS):
            continue
        arguments = [*method.args.posonlyargs, *method.args.args]
        first = arguments[0].arg if arguments else None
        for (base, attribute), bindings in scope.attributes.items():
            if base == first:
                found.setdefault(attribute, []).extend(bindings)
    return found
