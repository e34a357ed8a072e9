"""The words that a program is given, as its own code sees them: ``sys.argv``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.run import Run

_PLAIN = frozenset({"torchrun", "accelerate", "python", "srun", "mpirun"})
"""Launchers that hand on the program's words as they are; DeepSpeed's puts ``--local_rank`` before them."""
_COMPARISONS: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}


def program_argv(launch: Launch) -> tuple[str, ...] | None:
    """``sys.argv[1:]`` of the launched program; None if an argument is unknown or others may be added."""
    if launch.launcher not in _PLAIN or not launch.options.complete:
        return None
    words = [word.value for word in launch.options.words]
    return None if None in words else tuple(word for word in words if word is not None)


def argv_index(node: ast.expr) -> int | None:
    """N of ``sys.argv[N]``, as it is or within ``os.path.abspath(…)`` and the like; None for anything else."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        if _is_dotted_name_ending_in(node.func, "abspath", "expanduser", "realpath", "normpath", "str", "Path"):
            return argv_index(node.args[0])
        return None
    if not isinstance(node, ast.Subscript) or not _is_argv(node.value):
        return None
    index = node.slice
    if isinstance(index, ast.Constant) and isinstance(index.value, int) and index.value > 0:
        return index.value
    return None


def holds_for_argv(test: ast.expr, run: Run) -> bool:
    """Whether a condition about ``sys.argv`` alone certainly holds for the launch's arguments."""
    words = program_argv(run.launch) if run.launch is not None else None
    return words is not None and _truth_of_test(test, words) is True


def _truth_of_test(test: ast.expr, words: tuple[str, ...]) -> bool | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _truth_of_test(test.operand, words)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        decides = isinstance(test.op, ast.Or)
        found = [_truth_of_test(one, words) for one in test.values]
        return decides if decides in found else None if None in found else not decides
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _truth_of_comparison(test.left, test.ops[0], test.comparators[0], words)
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute) and len(test.args) == 1:
        text, ending = _argv_item(test.func.value, words), _literal_value(test.args[0])
        if text is not None and isinstance(ending, str | tuple) and test.func.attr == "endswith":
            return text.endswith(ending)
        if text is not None and isinstance(ending, str | tuple) and test.func.attr == "startswith":
            return text.startswith(ending)
    return None


def _truth_of_comparison(left: ast.expr, comparison: ast.cmpop, right: ast.expr, words: tuple[str, ...]) -> bool | None:
    wanted = _literal_value(right)
    if (
        isinstance(left, ast.Call)
        and _is_dotted_name_ending_in(left.func, "len")
        and len(left.args) == 1
        and _is_argv(left.args[0])
    ):
        compare = _COMPARISONS.get(type(comparison))
        return compare(len(words) + 1, wanted) if compare is not None and isinstance(wanted, int) else None
    text = _argv_item(left, words)
    if text is not None and isinstance(wanted, str) and isinstance(comparison, ast.Eq | ast.NotEq):
        return (text == wanted) is isinstance(comparison, ast.Eq)
    return None


def _argv_item(node: ast.expr, words: tuple[str, ...]) -> str | None:
    index = argv_index(node)
    if index is None and isinstance(node, ast.Subscript) and _is_argv(node.value) and _literal_value(node.slice) == -1:
        index = len(words)
    return words[index - 1] if index is not None and 0 < index <= len(words) else None


def _literal_value(node: ast.expr) -> object:
    try:
        found: object = ast.literal_eval(node)
    except ValueError:
        return None
    return found


def _is_argv(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "argv" and _is_dotted_name_ending_in(node.value, "sys")


def _is_dotted_name_ending_in(node: ast.expr, *names: str) -> bool:
    return (node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "") in names
