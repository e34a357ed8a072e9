"""``--ranks auto``: rank 0, plus the last rank if the files suggest that ranks may differ."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from gonogo.evidence.field import Field
from gonogo.evidence.run import Run
from gonogo.evidence.script.identifiers import last_name, split_identifier
from gonogo.evidence.script.script import Call
from gonogo.finding import Text, translated
from gonogo.hazards.facts.rank_tests import excludes_some_ranks
from gonogo.rehearse.ranks.mesh import mesh_from_options, roles_in_device_mesh
from gonogo.rehearse.ranks.rank_options import AUTO, FIRST_AND_LAST, ROLES

_LOGGING_FUNCTIONS = frozenset(
    {
        *("print", "info", "warning", "warn", "debug", "log", "pprint", "set_description", "set_postfix", "update"),
        *("close", "write", "format", "join", "append", "round", "len", "str", "int", "float", "add_scalar", "item"),
    }
)
"""Calls that only log or format something."""
_PARALLEL_SIZE_WORDS = frozenset({"size", "degree", "parallelism"})
_RANK_DEPENDENT_CODE = translated("the code at {place} depends on the rank")
_MODEL_PARALLEL_OPTION = translated("{option} divides the model among ranks")
_DIRECT_COLLECTIVES = translated("the program calls collectives itself ({place})")
_NON_TEXT_DATA = translated("its data contains more than text ({place})")
_PARALLELISM_CONFIG = translated(
    "accelerate's parallelism config ({sizes}) divides the model or its sequences among ranks"
)
_PARALLELISM_CONFIG_SIZES = ("dp_replicate", "dp_shard", "cp", "sp", "tp")
_DEVICE_MESH = translated("the device mesh at {place} divides the model among ranks")
_ROLES_NOTE = translated(
    "ranks {ranks} were rehearsed together, one for each role, since {why} (--ranks 0: only rank 0)"
)
_FIRST_AND_LAST_NOTE = translated(
    "rank 0 and the last rank were rehearsed together, since {why} (--ranks 0: only rank 0)"
)


def resolve_auto_ranks(ranks_option: str, runs: Sequence[Run]) -> tuple[str, Text | None]:
    """The resolved ``--ranks`` and a note about it; anything but ``auto`` is unchanged."""
    if ranks_option.strip().lower() != AUTO:
        return ranks_option, None
    for run in runs:
        if run.launch is None or run.world_size == 1:
            continue
        difference = next(_divergence_reasons(run), None)
        for roles, why in _ranks_by_role(run):
            ranks = sorted(roles | ({run.world_size - 1} if difference is not None and run.world_size else set()))
            listed = ",".join(map(str, ranks))
            return f"{ROLES}{listed}", _ROLES_NOTE.format(ranks=listed.replace(",", ", "), why=why)
        sizes = [_MODEL_PARALLEL_OPTION.format(option=f"{name} {value}") for name, value in _parallel_sizes(run)]
        for why in (*sizes[:1], *([difference] if difference is not None else [])):
            return FIRST_AND_LAST, _FIRST_AND_LAST_NOTE.format(why=why)
    return "0", None


def _ranks_by_role(run: Run) -> Iterator[tuple[set[int], Text]]:
    """One rank of each role, by the program's options or its device mesh, and what says so."""
    if run.world_size is None:
        return
    sizes = list(_parallel_sizes(run))
    if sizes:
        options = {_option_as_identifier(name): str(run.arguments.get(name).get("")) for name in run.arguments.names()}
        mesh = mesh_from_options(options, run.world_size)
        if mesh is not None:
            yield mesh.roles(), _MODEL_PARALLEL_OPTION.format(option=f"{sizes[0][0]} {sizes[0][1]}")
    sizes_in_mesh = _parallelism_config(run)
    roles = roles_in_device_mesh([*sizes_in_mesh.values()], [*sizes_in_mesh], run.world_size)
    if roles is not None:
        yield (
            roles,
            _PARALLELISM_CONFIG.format(
                sizes=", ".join(f"{name}_size {size}" for name, size in sizes_in_mesh.items() if size > 1)
            ),
        )
    for call, roles in _device_meshes(run):
        yield roles, _DEVICE_MESH.format(place=f"{call.script.source.path}:{call.node.lineno}")


def _parallelism_config(run: Run) -> dict[str, int]:
    """The sizes of accelerate's ``ParallelismConfig``, in the order of its mesh; empty where it isn't used.

    They are variables of the launch, options of ``accelerate launch``, or in its config file.
    """
    launch = run.launch
    if launch is None:
        return {}
    found = {}
    for name in _PARALLELISM_CONFIG_SIZES:
        setting = f"parallelism_config_{name}_size"
        options = launch.launcher_options
        fields = [launch.variable(setting.upper()), options.get(setting) if setting in options else Field.missing()]
        if run.accelerate is not None:
            fields.append(run.accelerate.get("parallelism_config", setting))
        given = next((str(field.value) for field in fields if field.known and str(field.value).isdecimal()), "1")
        found[name] = int(given)
    return found if max(found.values()) > 1 else {}


def _device_meshes(run: Run) -> Iterator[tuple[Call, set[int]]]:
    """The device meshes whose sizes and names are written out, and one rank of each role in them."""
    for script in run.scripts:
        for call in script.calls(
            "torch.distributed.device_mesh.init_device_mesh", "torch.distributed.init_device_mesh"
        ):
            shape, names = _argument_value(call, 1, "mesh_shape"), call.keyword("mesh_dim_names").get(None)
            if not isinstance(shape, list | tuple) or not isinstance(names, list | tuple) or run.world_size is None:
                continue
            if not all(isinstance(size, int) and size > 0 for size in shape) or not all(map(_is_string, names)):
                continue
            roles = roles_in_device_mesh(shape, names, run.world_size)
            if roles is not None and run.reachable_code.is_reachable(script.source.path, call.node.lineno):
                yield call, roles


def _argument_value(call: Call, index: int, name: str) -> Any:
    return call.keyword(name).get(None) if call.has(name) else call.argument(index).get(None)


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _option_as_identifier(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _divergence_reasons(run: Run) -> Iterator[Text]:
    """Reasons why ranks that hold the same part of the model may behave differently."""
    for script in run.scripts:
        for call in script.calls("torch.distributed.*"):
            if last_name(call.node) in _COLLECTIVES and run.reachable_code.is_reachable(
                script.source.path, call.node.lineno
            ):
                yield _DIRECT_COLLECTIVES.format(place=f"{script.source.path}:{call.node.lineno}")
        for node in ast.walk(script.tree) if script.tree is not None else ():
            if (
                isinstance(node, ast.If)
                and excludes_some_ranks(script, node.test)
                and not all(map(_is_logging_only, (*node.body, *node.orelse)))
                and run.reachable_code.is_reachable(script.source.path, node.lineno)
            ):
                yield _RANK_DEPENDENT_CODE.format(place=f"{script.source.path}:{node.lineno}")
        for call in script.calls("transformers.AutoProcessor.from_pretrained"):
            if run.reachable_code.is_reachable(script.source.path, call.node.lineno):
                yield _NON_TEXT_DATA.format(place=f"{script.source.path}:{call.node.lineno}")


_COLLECTIVES = frozenset(
    {
        *("all_reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter", "all_to_all", "reduce"),
        *("gather", "scatter", "send", "recv", "isend", "irecv", "all_gather_object", "broadcast_object_list"),
        *("gather_object", "scatter_object_list", "all_to_all_single", "reduce_scatter_tensor"),
    }
)


def _parallel_sizes(run: Run) -> Iterator[tuple[str, int]]:
    """Options of the program that split a model: ``--tensor_model_parallel_size 2``."""
    for name in run.arguments.names():
        parts = set(split_identifier(_option_as_identifier(name)))
        if "parallel" in parts and parts & _PARALLEL_SIZE_WORDS:
            value = run.arguments.get(name).get(None)
            if isinstance(value, int | str) and str(value).isdecimal() and int(value) > 1:
                yield name, int(value)


def _is_logging_only(statement: ast.stmt) -> bool:
    """Whether a statement only logs something, so that it contains no collective."""
    leaves = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Return, ast.Raise, ast.Break, ast.Continue)
    if any(isinstance(node, leaves) for node in ast.walk(statement)):
        return False
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return all(last_name(call) in _LOGGING_FUNCTIONS for call in calls)
