"""Dumps in the format of NCCL's Flight Recorder, one per rank, with the collectives of the rehearsed ranks.

They are read by PyTorch's own analyzer (``torchfrtrace DIR``, torch.distributed.flight_recorder) and by ``gonogo
diagnose``. Of a tensor's shape, a rehearsal knows only the number of elements. A collective of Python objects is
represented by the first collective that NCCL would record for it; creating a group is ``split``, as with NCCL's
communicators.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding.divergence import ENGINE_CONSTRUCTION, ENGINE_GENERATION
from gonogo.rehearse.ranks.call_log import CallLog, LoggedCall

VERSION = "2.10"
PREFIX = "nccl_trace_rank_"
_FLIGHT_RECORDER_NAMES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "allreduce_coalesced",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "barrier": "all_reduce_barrier",
    "monitored_barrier": "barrier",
    "allgather": "all_gather",
    "allgather_base": "_all_gather_base",
    "allgather_coalesced": "all_gather_into_tensor_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_base": "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "gather": "gather",
    "scatter": "scatter",
    "all_gather_object": "all_gather",
    "gather_object": "all_gather",
    "broadcast_object_list": "broadcast",
    "scatter_object_list": "broadcast",
    "new_group": "split",
    # The ranks of a rollout engine agree on the smallest KV cache, and all-reduce in every layer.
    ENGINE_CONSTRUCTION: "all_reduce",
    ENGINE_GENERATION: "all_reduce",
}
"""The Flight Recorder's name of each collective."""
_ALL_GATHERS = frozenset({"allgather", "allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced"})
"""The logged sizes of these are those of the output."""
_REDUCE_SCATTERS = frozenset({"reduce_scatter", "reduce_scatter_base", "reduce_scatter_tensor_coalesced"})
_OBJECT_GATHERS = frozenset({"all_gather_object", "gather_object"})
_ONE_TENSOR = frozenset({"allgather", "reduce_scatter", "alltoall"})
"""These take or return a list of tensors, which the recorder counts as one."""
_DTYPES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long",
    "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool",
}  # fmt: skip


def rank_dumps(log: CallLog, record: RehearsalRecord) -> Iterator[tuple[str, bytes]]:
    """(file name, contents) of each rehearsed rank."""
    library = "hccl" if record.accelerator.device_type == "npu" else "nccl"
    groups = {key: str(number) for number, key in enumerate(log.groups)}
    for rank in record.ranks:
        yield f"{PREFIX}{rank.rank}", pickle.dumps(_rank_dump(log, rank.rank, groups, library), protocol=2)


def _rank_dump(log: CallLog, rank: int, names: dict[str, str], library: str) -> dict[str, Any]:
    frames: dict[int, list[dict[str, Any]]] = {}
    entries = [
        _call_entry(number, logged, log, rank, names, library, frames)
        for number, logged in enumerate(log.calls.get(rank, ()))
    ]
    own = {key: members for key, members in log.groups.items() if rank in members}
    last = dict.fromkeys(own, 0)
    for logged in log.calls.get(rank, ()):
        last[logged.call.group] = logged.number + 1
    return {
        "version": VERSION,
        "comm_lib_version": "",
        "pg_config": {
            names[key]: {"name": names[key], "desc": _describe_group(key), "ranks": str(list(members))}
            for key, members in own.items()
        },
        "pg_status": {
            names[key]: {
                "last_enqueued_collective": last[key],
                "last_started_collective": min(last[key], log.alike.get(key, 0) + 1),
                "last_completed_collective": min(last[key], log.alike.get(key, 0)),
            }
            for key in own
        },
        "entries": entries,
    }


def _call_entry(
    number: int,
    logged_call: LoggedCall,
    log: CallLog,
    rank: int,
    names: dict[str, str],
    library: str,
    frames: dict[int, list[dict[str, Any]]],
) -> dict[str, Any]:
    call, members = logged_call.call, log.groups[logged_call.call.group]
    alike = log.alike.get(call.group, 0)
    state = "completed" if logged_call.number < alike else "started" if logged_call.number == alike else "scheduled"
    if call.site not in frames:
        site = log.sites.get((rank, call.site))
        stack = reversed(site.frames) if site is not None else ()
        frames[call.site] = [{"name": f.function, "filename": f.path, "line": f.line} for f in stack]
    passes = call.operator.startswith("send/recv")
    sent, got = _input_and_output_shapes(call.operator, call.sizes, len(members))
    name = _p2p_key(rank, members, call.root) if passes else _profiling_name(call.operator, call.sizes, len(members))
    dtype = _DTYPES.get(call.dtype or "", call.dtype or "Byte")
    return {
        "record_id": number,
        "pg_id": int(names[call.group]),
        "process_group": (names[call.group], _describe_group(call.group)),
        "collective_seq_id": logged_call.number + 1,
        "p2p_seq_id": logged_call.number + 1 if passes else 0,
        "op_id": number + 1,
        "profiling_name": f"{library}:{name}",
        "time_created_ns": logged_call.heard_ns,
        "input_sizes": sent,
        "input_dtypes": [dtype] * len(sent),
        "output_sizes": got,
        "output_dtypes": [dtype] * len(got),
        "state": state,
        "time_discovered_started_ns": None if state == "scheduled" else logged_call.heard_ns,
        "time_discovered_completed_ns": logged_call.heard_ns if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600000,
        "is_p2p": passes,
        "frames": frames[call.site],
    }


def _input_and_output_shapes(
    operator: str, sizes: tuple[int, ...], ranks: int
) -> tuple[list[list[int]], list[list[int]]]:
    if operator == "new_group":
        return [list(sizes)], [list(sizes)]
    if not sizes:
        return [[1]], [[ranks if operator in _OBJECT_GATHERS else 1]]
    if operator in _ONE_TENSOR:
        sizes = (sum(sizes),)
    whole = [[size] for size in sizes]
    parts = [[size // ranks] for size in sizes]
    times = [[size * ranks] for size in sizes]
    if operator == "scatter":
        return times, whole
    if operator == "gather":
        return whole, times
    if operator in _ALL_GATHERS:
        return parts, whole
    return whole, parts if operator in _REDUCE_SCATTERS else whole


def _profiling_name(operator: str, sizes: tuple[int, ...], ranks: int) -> str:
    if operator in ("allgather", "reduce_scatter") and sum(sizes) % ranks:
        return f"{_FLIGHT_RECORDER_NAMES[operator]}_v"
    return _FLIGHT_RECORDER_NAMES[operator]


def _p2p_key(rank: int, members: tuple[int, ...], source: int | None) -> str:
    """NCCL's key for the communicator of two ranks, which are numbered within their group."""
    inside = sorted(members)
    sender = inside.index(source if source is not None else inside[0])
    receiver = 1 - sender if len(inside) > 1 else sender
    return f"send {sender}->{receiver}" if rank == source else f"recv {receiver}<-{sender}"


def _describe_group(key: str) -> str:
    """The group's description in the analyzer."""
    if key == "world":
        return "new_group"
    name, _, rest = key.partition(":")
    if ">" in rest:
        return "from rank to rank " + rest.split(":")[3]
    return "default_pg" if name == "0" else f"group {name}"
