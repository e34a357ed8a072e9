"""What identifiers in code express: compared word by word on the syntax tree, never as substrings of its text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

_IDENTIFIER_WORD_PATTERN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_KEY_ARGUMENT_INDEX = {"get": 0, "getenv": 0, "setdefault": 0, "pop": 0, "getattr": 1, "hasattr": 1}
"""The index of the argument that is a name, for look-ups: ``os.environ.get("RANK")``, ``getattr(args, "rank")``."""
_OPTIONS_OBJECT_NAMES = frozenset(
    {"args", "kwargs", "cfg", "config", "conf", "opts", "opt", "options", "flags", "hparams"}
)


@lru_cache(maxsize=4096)
def split_identifier(name: str) -> tuple[str, ...]:
    """The words of an identifier in lower case: ``isRank0`` and ``is_rank_0`` both give is, rank, 0."""
    return tuple(word.lower() for word in _IDENTIFIER_WORD_PATTERN.findall(name))


def contains_words(name: str, *phrases: str) -> bool:
    """Whether an identifier contains the words of a phrase in sequence: ``cfg_zero3`` contains ``zero_3``."""
    own = split_identifier(name)
    return any(
        own[start : start + len(wanted)] == wanted
        for wanted in map(split_identifier, phrases)
        for start in range(len(own) - len(wanted) + 1)
    )


def identifiers_in(node: ast.AST) -> Iterator[str]:
    """All names in a piece of code: variables, attributes, parameters, keywords, and literal keys.

    String literals used as values don't count: ``args.domain == "main"`` yields ``args`` and ``domain``,
    ``os.environ["RANK"]`` and ``"RANK" in os.environ`` yield ``RANK``.
    """
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, (ast.arg, ast.keyword)):
            if each.arg is not None:
                yield each.arg
        elif isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield each.name
        elif isinstance(key := _accessed_key(each), ast.Constant) and isinstance(key.value, str):
            yield key.value


def _accessed_key(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.Subscript):
        return node.slice
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return node.left
    at = _KEY_ARGUMENT_INDEX.get(last_name(node.func)) if isinstance(node, ast.Call) else None
    return node.args[at] if isinstance(node, ast.Call) and at is not None and at < len(node.args) else None


def uses_name(node: ast.AST, *phrases: str) -> bool:
    """Whether an identifier in a piece of code contains one of the phrases."""
    return any(contains_words(name, *phrases) for name in identifiers_in(node))


def last_name(node: ast.AST | None) -> str:
    """``c`` for ``a.b.c``, for ``c`` and for a call of either; empty for anything else."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_tensor_gather(call: ast.Call) -> bool:
    """Whether a call is a tensor's ``gather(dim, index)``, rather than the collective of that name."""
    keywords = {keyword.arg for keyword in call.keywords}
    if last_name(call.func) not in ("gather", "take_along_dim"):
        return False
    at = call.args[1 if uses_name(call.func, "torch") else 0 :]
    return bool({"dim", "index"} & keywords) or (len(at) > 1 and _is_whole_number(at[0]))


def _is_whole_number(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and type(node.value) is int


def same_code(left: object, other: object) -> bool:
    """Whether two pieces of code are the same, regardless of position and of being read or assigned."""
    if isinstance(left, ast.expr_context) and isinstance(other, ast.expr_context):
        return True
    if isinstance(left, ast.AST):
        return type(left) is type(other) and all(
            same_code(getattr(left, name, None), getattr(other, name, None)) for name in left._fields
        )
    if isinstance(left, list):
        return isinstance(other, list) and len(left) == len(other) and all(map(same_code, left, other))
    return type(left) is type(other) and left == other


def is_option(node: ast.AST) -> bool:
    """Whether an expression is an option of the run: ``args.resume``, ``self.config["save"]``."""
    if not isinstance(node, (ast.Attribute, ast.Subscript)):
        return False
    return split_identifier(last_name(node.value))[-1:] in {(word,) for word in _OPTIONS_OBJECT_NAMES}


def has_option(node: ast.AST) -> bool:
    """Whether a piece of code contains an option of the run."""
    return any(map(is_option, ast.walk(node)))


def is_main_guard(test: ast.AST) -> bool:
    """Whether a test is ``__name__ == "__main__"``, or contains it."""
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(test))


def function_at(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function around a line, or the module."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=tree)


def assigned_targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) -> Iterator[ast.expr]:
    """What an assignment assigns to; of a tuple or list, each element."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
