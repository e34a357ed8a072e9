"""Makes one table of what several releases know: each key with the releases that know it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from scripts.deepspeed_keys.keys import Key
from scripts.deepspeed_keys.optimizers import optimizers_of, schedulers_of
from scripts.deepspeed_keys.release import Release
from scripts.deepspeed_keys.trace import keys_of

# What the source leaves open: a default of None tells no type.
_TYPES = {
    **dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "int"),
    **dict.fromkeys(("vocabulary_size", "sequence_parallel_size"), "int"),
    # accelerate sets steps_per_print to infinity, to silence DeepSpeed.
    "steps_per_print": "float",
    **dict.fromkeys(("communication_data_type", "seq_parallel_communication_data_type"), "str"),
    **dict.fromkeys(("optimizer.type", "scheduler.type", "log_level", "torch_autocast.dtype"), "str"),
    **dict.fromkeys(("optimizer.params", "scheduler.params", "datastates_ckpt"), "object"),
    "optimizer.legacy_fusion": "bool",
    "activation_checkpointing.number_checkpoints": "int",
    "torch_autocast.lower_precision_safe_modules": "list",
    "gradient_clipping": "float",
    "allgather_size": "float",
    # The oldest way to turn ZeRO on is a boolean.
    "zero_optimization": "object",
}
# What a reader checks by hand.
_VALUES = {
    "gradient_allreduce_op": ["mean", "sum"],
    "checkpoint.tag_validation": ["WARN", "IGNORE", "FAIL"],
    "communication_data_type": ["fp16", "bf16", "fp32"],
    "seq_parallel_communication_data_type": ["fp16", "bf16", "fp32"],
}
_RENAMED = {
    "zero_optimization.cpu_offload_params": "offload_param",
    "zero_optimization.find_unused_parameters": "ignore_unused_parameters",
    "fp32_allreduce": "communication_data_type",
    "seq_parallel_comm_data_type": "seq_parallel_communication_data_type",
    "aio.thread_count": "intra_op_parallelism",
    "bfloat16": "bf16",
    "curriculum_learning": "data_efficiency.data_sampling.curriculum_learning",
}
# Their reader hands them on to code that reads what it likes.
_FREE = ("compression_training", "sparse_attention", "amp", "progressive_layer_drop", "quantize_training")


def table_of(releases: Sequence[Release]) -> dict[str, Any]:
    """What the releases know, the oldest first, as the table's JSON."""
    versions = [release.version for release in releases]
    return {
        "releases": versions,
        "keys": _merged([keys_of(release).children for release in releases], versions, ()),
        "optimizers": _merged([optimizers_of(release) for release in releases], versions, ("optimizer", "params")),
        "schedulers": _merged([schedulers_of(release) for release in releases], versions, ("scheduler", "params")),
    }


def _merged(known: list[dict[str, Key]], versions: list[str], path: tuple[str, ...]) -> dict[str, Any]:
    """The keys at one level; ``known`` has what each release knows there."""
    names = sorted({name for one in known for name in one})
    return {name: _row([one.get(name) for one in known], versions, (*path, name), known) for name in names}


def _row(keys: list[Key | None], versions: list[str], path: tuple[str, ...], known: list[dict[str, Key]]) -> Any:
    dotted = ".".join(path)
    have = [(key, version) for key, version in zip(keys, versions, strict=True) if key is not None and not key.refused]
    newest = have[-1][0] if have else Key()
    row: dict[str, Any] = {"type": _TYPES.get(dotted, newest.type)}
    if have and have[0][1] != versions[0]:
        row["since"] = have[0][1]
    if have and have[-1][1] != versions[-1]:
        row["until"] = have[-1][1]
    known_in = [index for index, key in enumerate(keys) if key is not None and not key.refused]
    if known_in and (gap := [versions[i] for i in range(known_in[0], known_in[-1]) if i not in known_in]):
        row["absent"] = gap
    refused = [version for key, version in zip(keys, versions, strict=True) if key is not None and key.refused]
    if refused:
        row["refused"] = refused[0]
    defaults = _changes([(version, key.default) for key, version in have])
    if newest.default is not None:
        row["default"] = newest.default
    if len(defaults) > 1:
        row["defaults"] = defaults
    if values := _VALUES.get(dotted, newest.values):
        row["values"] = values
    if newest.bounds:
        row["bounds"] = newest.bounds
    if first := _limits_since(have):
        row["limits_since"] = first
    if newest.deprecated or dotted in _RENAMED:
        row["deprecated"] = True
        row["replacement"] = _RENAMED.get(dotted) or _canonical(newest.replacement, known)
    if newest.same_as:
        row["same_as"] = newest.same_as
    closed = [version for key, version in have if key.closed]
    if closed and newest.closed:
        row["closed"] = closed[0]
    if path[0] in _FREE or (newest.free and row["type"] in ("object", "any")):
        row["free"] = True
    children = _merged([key.children if key is not None else {} for key in keys], versions, path)
    if children:
        row["children"] = children
    return row


def _limits_since(have: list[tuple[Key, str]]) -> str:
    """The first release from which values and bounds are the newest's; empty where they always were."""
    first = ""
    for (key, _), (after, version) in pairwise(have):
        if (key.values, key.bounds) != (after.values, after.bounds):
            first = version
    newest = have[-1][0] if have else Key()
    return first if newest.values or newest.bounds else ""


def _changes(defaults: list[tuple[str, Any]]) -> list[list[Any]]:
    """The default with each release in which it first is another."""
    found: list[list[Any]] = []
    for version, value in defaults:
        if not found or (found[-1][1] != value and float_of(found[-1][1]) != float_of(value)):
            found.append([version, value])
    return found


def float_of(value: Any) -> Any:
    """A number as a float, so that 500000000 is 5e8."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _canonical(name: str, known: list[dict[str, Key]]) -> str:
    key = known[-1].get(name)
    return key.same_as if key is not None and key.same_as else name
