"""``--ranks auto``: rank 0, and the last one beside it where the files say that ranks may not all do the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from gonogo.evidence.run import Run
from gonogo.evidence.script.identifiers import last_name, words
from gonogo.finding import Text, translated
from gonogo.hazards.facts.rank_tests import excludes_some_ranks
from gonogo.rehearse.ranks.rank_options import AUTO, FIRST_AND_LAST

_LOGGING_FUNCTIONS = frozenset(
    {
        *("print", "info", "warning", "warn", "debug", "log", "pprint", "set_description", "set_postfix", "update"),
        *("close", "write", "format", "join", "append", "round", "len", "str", "int", "float", "add_scalar", "item"),
    }
)
"""Calls by which a rank only tells something."""
_SIZES = frozenset({"size", "degree", "parallelism"})
_RANK_DEPENDENT_CODE = translated("the code at {place} is not the same for all ranks")
_MODEL_PARALLEL_OPTION = translated("{option} divides the model among ranks")
_DIRECT_COLLECTIVES = translated("the program calls collectives itself ({place})")
_NON_TEXT_DATA = translated("its data is not only text ({place})")
_NOTE = translated("rank 0 and the last rank were rehearsed together, since {why} (--ranks 0: only that one)")


def resolve_auto_ranks(ranks_option: str, runs: Sequence[Run]) -> tuple[str, Text | None]:
    """What ``--ranks`` comes to, and what is to be said of it; anything but ``auto`` stays as it is."""
    if ranks_option.strip().lower() != AUTO:
        return ranks_option, None
    why = next((why for run in runs for why in _differences(run)), None)
    return ("0", None) if why is None else (FIRST_AND_LAST, _NOTE.format(why=why))


def _differences(run: Run) -> Iterator[Text]:
    """Reasons for which the ranks of a run may part."""
    if run.launch is None or run.world_size == 1:
        return
    for name, value in _parallel_sizes(run):
        yield _MODEL_PARALLEL_OPTION.format(option=f"{name} {value}")
    for script in run.scripts:
        for call in script.calls("torch.distributed.*"):
            if last_name(call.node) in _COLLECTIVES and run.reached.holds(script.source.path, call.node.lineno):
                yield _DIRECT_COLLECTIVES.format(place=f"{script.source.path}:{call.node.lineno}")
        for node in ast.walk(script.tree) if script.tree is not None else ():
            if (
                isinstance(node, ast.If)
                and excludes_some_ranks(script, node.test)
                and not all(map(_is_logging_only, (*node.body, *node.orelse)))
                and run.reached.holds(script.source.path, node.lineno)
            ):
                yield _RANK_DEPENDENT_CODE.format(place=f"{script.source.path}:{node.lineno}")
        for call in script.calls("transformers.AutoProcessor.from_pretrained"):
            if run.reached.holds(script.source.path, call.node.lineno):
                yield _NON_TEXT_DATA.format(place=f"{script.source.path}:{call.node.lineno}")


_COLLECTIVES = frozenset(
    {
        *("all_reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter", "all_to_all", "reduce"),
        *("gather", "scatter", "send", "recv", "isend", "irecv", "all_gather_object", "broadcast_object_list"),
        *("gather_object", "scatter_object_list", "all_to_all_single", "reduce_scatter_tensor"),
    }
)


def _parallel_sizes(run: Run) -> Iterator[tuple[str, int]]:
    """Options of the program that divide a model: ``--tensor_model_parallel_size 2``."""
    for name in run.arguments.names():
        parts = set(words(name.lstrip("-").replace("-", "_")))
        if "parallel" in parts and parts & _SIZES:
            value = run.arguments.get(name).get(None)
            if isinstance(value, int | str) and str(value).isdigit() and int(value) > 1:
                yield name, int(value)


def _is_logging_only(statement: ast.stmt) -> bool:
    """Whether a statement does nothing but tell something: a collective in it would be a call."""
    leaves = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Return, ast.Raise, ast.Break, ast.Continue)
    if any(isinstance(node, leaves) for node in ast.walk(statement)):
        return False
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return all(last_name(call) in _LOGGING_FUNCTIONS for call in calls)
