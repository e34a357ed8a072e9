"""Tests in a script that let one rank through."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gonogo.evidence.script.script import Script

_MAIN = (
    "is_main_process",
    "is_local_main_process",
    "is_world_process_zero",
    "is_local_process_zero",
    "is_master",
    "is_rank_0",
)
# Ranks within a part of the world: others of the world have the same.
_OTHER_RANKS = (
    "parallel",
    "tp_",
    "pp_",
    "dp_",
    "sp_",
    "cp_",
    "ep_",
    "model",
    "pipe",
    "expert",
    "stage",
    "tensor",
    "group",
)


def is_one_rank(test: ast.expr) -> bool:
    """Whether a test holds on one rank (of a node) and on no other: ``rank == 0``, ``accelerator.is_main_process``."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(is_one_rank(one) for one in test.values)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = ast.unparse(test.left).lower(), test.comparators[0]
        equal = isinstance(test.ops[0], ast.Eq) and isinstance(right, ast.Constant) and isinstance(right.value, int)
        return equal and "rank" in left and not any(word in left for word in _OTHER_RANKS)
    name = ast.unparse(test)
    return name.removesuffix("()").rpartition(".")[2] in _MAIN


def mentions_rank(test: ast.expr) -> bool:
    """Whether a test has to do with ranks in any way."""
    text = ast.unparse(test).lower()
    return any(
        word in text for word in ("rank", "main", "master", "zero", "local", "is_first", "gpu == 0", "coordinator")
    )


def one_rank_guard(script: Script, node: ast.AST) -> ast.expr | None:
    """The test of an ``if`` around a node that lets one rank through; None where there is none."""
    child: ast.AST = node
    for parent in script.ancestors(node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            return None
        inside = isinstance(parent, ast.If) and any(child is one for one in parent.body)
        if isinstance(parent, ast.If) and inside and is_one_rank(parent.test):
            return parent.test
        child = parent
    return None
