"""Tests of ranks in a script: code that only one rank runs, and conditions that depend on the rank."""

import ast
from collections.abc import Iterator

from gonogo.evidence.script.identifiers import contains_words, identifiers_in, last_name, split_identifier
from gonogo.evidence.script.nodes import is_none
from gonogo.evidence.script.script import Script

_MAIN_PROCESS_NAMES = frozenset(
    {
        *("is_main_process", "is_local_main_process", "is_world_process_zero", "is_local_process_zero", "is_rank_0"),
        *("is_rank_zero", "is_master", "is_main", "is_global_zero", "is_rank0", "is_last_process"),
    }
)
_PARALLEL_GROUP_WORDS = frozenset(
    {
        *("parallel", "tp", "pp", "dp", "sp", "cp", "ep", "mp", "model", "pipe", "pipeline", "expert", "stage"),
        *("tensor",),
    }
)
"""Words for ranks within a subgroup: other ranks of the world may have the same value."""
_MATRIX_RANK_WORDS = frozenset({"lora", "low", "full", "matrix", "adapter", "galore", "svd", "tucker"})
"""Words before "rank" that show a matrix rank, not that of a process."""
_MAIN_PROCESS_COMPOUNDS = frozenset(
    {
        "myrank",
        "localrank",
        "globalrank",
        "worldrank",
        "noderank",
        "procrank",
        "ddprank",
        "ismain",
        "ismaster",
        "procid",
    }
)
"""Compounds written as one word."""
_SINGLE_PROCESS_PHRASES = (
    *("main_process", "is_main", "is_master", "on_master", "master_process", "master_rank", "process_zero"),
    *("global_zero", "world_zero", "process_index", "is_first", "first_process", "coordinator"),
)
"""Names that distinguish one process from the others without the word rank."""
_MAIN_PROCESS_DECORATORS = ("rank_zero_only", "main_process_only", "on_main_process", "on_local_main_process")


def find_single_rank_test(script: Script, node: ast.AST) -> ast.expr | None:
    """The test by which only one rank (globally, or per machine) runs a node; None if there is none."""
    for test in script.guarded_by(node):
        found = next((part for part in _split_conjunction(script, test) if _selects_single_rank(script, part)), None)
        if found is not None and not _is_called_in_else_too(script, node):
            return test.operand if isinstance(test, ast.UnaryOp) and found is test else test
    function = script.enclosing_function(node)
    decorators = function.decorator_list if function is not None else ()
    return next((each for each in decorators if last_name(each) in _MAIN_PROCESS_DECORATORS), None)


def contains_rank_name(node: ast.AST) -> bool:
    """Whether code contains an identifier for a process's rank, or for one process among others."""
    return any(map(_is_rank_identifier, identifiers_in(node))) or any(map(_compares_gpu_index, ast.walk(node)))


def mentions_rank(script: Script, test: ast.expr) -> bool:
    """Whether a test, or the value of a name in it, depends on ranks in any way."""
    names = [each for each in ast.walk(test) if isinstance(each, ast.Name)]
    return any(map(contains_rank_name, (test, *map(script.bound_to, names))))


def excludes_some_ranks(script: Script, test: ast.expr) -> bool:
    """Whether a test depends on ranks and fails on some; ``local_rank != -1`` holds on all in a distributed run."""
    return any(
        mentions_rank(script, part) and not _is_true_on_all_ranks(part) for part in _split_conjunction(script, test)
    )


def _is_rank_identifier(name: str) -> bool:
    own = split_identifier(name)
    if (
        own in (("main",), ("master",))
        or contains_words(name, *_SINGLE_PROCESS_PHRASES)
        or not _MAIN_PROCESS_COMPOUNDS.isdisjoint(own)
    ):
        return True
    before = ("", *own)
    return any(word in ("rank", "ranks") and before[at] not in _MATRIX_RANK_WORDS for at, word in enumerate(own))


def _compares_gpu_index(node: ast.AST) -> bool:
    """Whether a test is like ``args.gpu == 0``, where a process's GPU index is used as its rank."""
    sides = (node.left, *node.comparators) if isinstance(node, ast.Compare) else ()
    return any(split_identifier(last_name(side))[-1:] == ("gpu",) for side in sides) and any(
        map(_is_integer_literal, sides)
    )


def _is_true_on_all_ranks(test: ast.expr) -> bool:
    """Whether a test holds on all ranks: ``rank != -1``, ``rank >= 0``, ``rank is not None``, or equivalents."""
    holds = True
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, holds = test.operand, not holds
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    op, bound = test.ops[0], test.comparators[0]
    minus_one = isinstance(bound, ast.UnaryOp) and isinstance(bound.op, ast.USub) and _is_literal_one(bound.operand)
    zero = isinstance(bound, ast.Constant) and bound.value == 0
    if minus_one or is_none(bound):
        return isinstance(op, (ast.NotEq, ast.IsNot, ast.Gt) if holds else (ast.Eq, ast.Is, ast.LtE))
    return zero and isinstance(op, ast.GtE if holds else ast.Lt)


def _is_literal_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _split_conjunction(script: Script, test: ast.expr) -> Iterator[ast.expr]:
    """The conditions that must all hold; a name that a test was assigned to is replaced by that test."""
    bound = script.bound_to(test)
    if isinstance(bound, (ast.Compare, ast.BoolOp)):
        test = bound
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for value in test.values:
            yield from _split_conjunction(script, value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.operand, ast.BoolOp) and isinstance(test.operand.op, ast.Or):
        for value in test.operand.values:
            yield ast.UnaryOp(op=ast.Not(), operand=value)
    else:
        yield test


def _selects_single_rank(script: Script, test: ast.expr) -> bool:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = test.operand
        if isinstance(inner, ast.Compare):
            differs = len(inner.ops) == 1 and isinstance(inner.ops[0], (ast.NotEq, ast.NotIn, ast.Gt))
            return differs and _compares_rank(script, inner)
        return _is_rank_expression(inner)
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.In)) and _compares_rank(script, test)
    return last_name(test) in _MAIN_PROCESS_NAMES


def _compares_rank(script: Script, test: ast.Compare) -> bool:
    """Whether a comparison is ``rank == 0``, ``0 == rank``, ``rank in (-1, 0)``, or ``r == 0`` for a rank r."""
    sides = [test.left, test.comparators[0]]
    return any(
        (_is_rank_expression(one) or _is_rank_expression(_bound_value(script, one))) and _is_integer_literal(other)
        for one, other in (sides, sides[::-1])
    )


def _bound_value(script: Script, node: ast.expr) -> ast.expr:
    """The value of a name, unless it refers to a subgroup: the rank in a group is not the global rank."""
    bound = script.bound_to(node)
    of_part = not _PARALLEL_GROUP_WORDS.isdisjoint(split_identifier(last_name(node)))
    of_group = (
        isinstance(bound, ast.Call) and contains_words(last_name(bound), "get_rank") and (bound.args or bound.keywords)
    )
    return node if of_part or of_group else bound


def _is_integer_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value == "0" or (isinstance(node.value, int) and not isinstance(node.value, bool))
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return len(node.elts) <= 2 and any(isinstance(each, ast.Constant) and each.value == 0 for each in node.elts)
    return False


def _is_rank_expression(node: ast.expr) -> bool:
    name = last_name(node)
    if name in ("int", "get", "getenv") and isinstance(node, ast.Call) and node.args:
        return _is_rank_expression(node.args[0])
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.lower() in ("rank", "local_rank", "slurm_procid")
    if isinstance(node, ast.Subscript):
        return _is_rank_expression(node.slice)
    own = split_identifier(name)
    if not _PARALLEL_GROUP_WORDS.isdisjoint(own) or not _MATRIX_RANK_WORDS.isdisjoint(own[-2:-1]):
        return False
    return own[-1:] == ("rank",) or own in (("process", "index"), ("local", "process", "index"))


def _is_called_in_else_too(script: Script, node: ast.AST) -> bool:
    """Whether the other ranks make the same call, in the ``else`` of the same ``if``."""
    called = next((each for each in ast.walk(node) if isinstance(each, ast.Call)), None)
    wanted = last_name(called)
    for each in script.ancestors(node):
        if isinstance(each, ast.If) and each.orelse:
            others = (inner for statement in each.orelse for inner in ast.walk(statement))
            if any(isinstance(inner, ast.Call) and last_name(inner) == wanted for inner in others):
                return True
    return False


def removable_rank_condition(script: Script, node: ast.AST) -> ast.If | None:
    """The ``if`` that contains only the statement of a node, so that it can be removed."""
    statement = script.statement(node)
    parent = script.parent(statement) if statement is not None else None
    if isinstance(statement, ast.Expr) and isinstance(parent, ast.If) and parent.body == [statement]:
        return parent if not parent.orelse and _selects_single_rank(script, parent.test) else None
    return None
