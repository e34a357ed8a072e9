"""Tests of ranks in a script: code that only one rank runs, and tests that have to do with ranks at all."""

import ast
from collections.abc import Iterator

from gonogo.evidence.script.script import Script

_MAIN = frozenset(
    {
        *("is_main_process", "is_local_main_process", "is_world_process_zero", "is_local_process_zero", "is_rank_0"),
        *("is_rank_zero", "is_master", "is_main", "is_global_zero", "is_rank0", "is_last_process"),
    }
)
# Ranks within a part of the world: others of the world have the same.
_OTHER_RANKS = ("parallel", "tp_", "pp_", "dp_", "sp_", "cp_", "ep_", "model", "pipe", "expert", "stage", "tensor")
_DECORATES = ("rank_zero_only", "main_process_only", "on_main_process", "on_local_main_process")


def on_one_rank(script: Script, node: ast.AST) -> ast.expr | None:
    """The test by which only one rank (of all, or of a machine) runs a node; None where nothing says so."""
    for test in script.guarded_by(node):
        found = next((part for part in _conjuncts(script, test) if _chooses_one(script, part)), None)
        if found is not None and not _otherwise_too(script, node):
            return test.operand if isinstance(test, ast.UnaryOp) and found is test else test
    function = script.enclosing_function(node)
    decorators = function.decorator_list if function is not None else ()
    return next((each for each in decorators if _last(each) in _DECORATES), None)


def mentions_rank(script: Script, test: ast.expr) -> bool:
    """Whether a test, or what a name in it stands for, has to do with ranks in any way."""
    names = [each for each in ast.walk(test) if isinstance(each, ast.Name)]
    text = " ".join(ast.unparse(each) for each in (test, *map(script.bound_to, names))).lower()
    return any(
        word in text for word in ("rank", "main", "master", "zero", "local", "is_first", "gpu == 0", "coordinator")
    )


def _conjuncts(script: Script, test: ast.expr) -> Iterator[ast.expr]:
    """The parts that must all hold; of a name that was given a test, that test."""
    bound = script.bound_to(test)
    if isinstance(bound, (ast.Compare, ast.BoolOp)):
        test = bound
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for value in test.values:
            yield from _conjuncts(script, value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.operand, ast.BoolOp) and isinstance(test.operand.op, ast.Or):
        for value in test.operand.values:
            yield ast.UnaryOp(op=ast.Not(), operand=value)
    else:
        yield test


def _chooses_one(script: Script, test: ast.expr) -> bool:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = test.operand
        if isinstance(inner, ast.Compare):
            differs = len(inner.ops) == 1 and isinstance(inner.ops[0], (ast.NotEq, ast.NotIn, ast.Gt))
            return differs and _of_rank(script, inner)
        return _is_rank(inner)
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.In)) and _of_rank(script, test)
    return _last(test) in _MAIN


def _of_rank(script: Script, test: ast.Compare) -> bool:
    """``rank == 0``, ``0 == rank``, ``rank in (-1, 0)``, ``r == 0`` where r is the rank."""
    sides = [test.left, test.comparators[0]]
    return any(
        (_is_rank(one) or _is_rank(_value(script, one))) and _is_number(other) for one, other in (sides, sides[::-1])
    )


def _value(script: Script, node: ast.expr) -> ast.expr:
    """What a name that says nothing of parts of the world stands for; the rank in a group is not the rank."""
    bound = script.bound_to(node)
    of_part = any(word in _last(node).lower() for word in _OTHER_RANKS)
    of_group = isinstance(bound, ast.Call) and _last(bound).endswith("get_rank") and (bound.args or bound.keywords)
    return node if of_part or of_group else bound


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value == "0" or (isinstance(node.value, int) and not isinstance(node.value, bool))
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return len(node.elts) <= 2 and any(isinstance(each, ast.Constant) and each.value == 0 for each in node.elts)
    return False


def _is_rank(node: ast.expr) -> bool:
    name = _last(node).lower()
    if name in ("int", "get", "getenv") and isinstance(node, ast.Call) and node.args:
        return _is_rank(node.args[0])
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.lower() in ("rank", "local_rank", "slurm_procid")
    if isinstance(node, ast.Subscript):
        return _is_rank(node.slice)
    if any(word in name for word in _OTHER_RANKS):
        return False
    return name in ("rank", "process_index", "local_process_index") or name.endswith(("_rank", "get_rank"))


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _last(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _otherwise_too(script: Script, node: ast.AST) -> bool:
    """Whether the other ranks make the same call, in the ``else`` of the same ``if``."""
    called = next((each for each in ast.walk(node) if isinstance(each, ast.Call)), None)
    wanted = _last(called.func) if called is not None else ""
    for each in script.ancestors(node):
        if isinstance(each, ast.If) and each.orelse:
            others = (inner for statement in each.orelse for inner in ast.walk(statement))
            if any(isinstance(inner, ast.Call) and _last(inner.func) == wanted for inner in others):
                return True
    return False


def lone_statement(script: Script, node: ast.AST) -> ast.If | None:
    """The ``if`` that holds nothing but the statement of a node, so that it can go."""
    statement = script.statement(node)
    parent = script.parent(statement) if statement is not None else None
    if isinstance(statement, ast.Expr) and isinstance(parent, ast.If) and parent.body == [statement]:
        return parent if not parent.orelse and _chooses_one(script, parent.test) else None
    return None
