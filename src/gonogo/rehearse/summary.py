"""The ``rehearsal`` object of the JSON report (schema gonogo.report/1), from the record. Sizes are bytes.

The keys of the contract are all there; what is beside them was added. ``seconds`` is the only value that differs
between two rehearsals of the same program.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gonogo.evidence.rehearsal.host_memory import host_memory_by_node
from gonogo.evidence.rehearsal.record import (
    CATEGORIES,
    Assumption,
    DeviceMemory,
    Failure,
    Frame,
    RankRecord,
    RehearsalRecord,
    Unsupported,
)


def rehearsal_object(record: RehearsalRecord, folder: str) -> dict[str, Any]:
    """The record as plain dicts and lists, without what differs from run to run."""
    return {
        "command": list(record.command),
        "launcher": record.launcher,
        "world_size": record.world_size,
        "nodes": record.nodes,
        "ranks_per_node": record.ranks_per_node,
        "accelerator": record.accelerator.name,
        "accelerator_bytes": record.accelerator.total_bytes,
        "allowance_bytes": record.accelerator.allowance_bytes,
        "steps": record.steps,
        "seconds": round(record.seconds, 3),
        "host_per_node": host_per_node(record),
        "versions": record.ranks[0].versions if record.ranks else {},
        "divergence": msgspec.to_builtins(record.divergence),
        "ranks": [_rank_object(rank, folder) for rank in record.ranks],
    }


def host_per_node(record: RehearsalRecord) -> dict[str, Any] | None:
    """Host memory of the fullest node of which a rank was run; None where no rank has a host record."""
    fullest = max(host_memory_by_node(record), key=lambda node: node.peak_bytes, default=None)
    if fullest is None:
        return None
    return {
        "peak_bytes": fullest.peak_bytes,
        "pinned_bytes": fullest.pinned_bytes,
        "capacity_bytes": record.host_memory_bytes,
        "ranks": fullest.ranks,
        "estimated": fullest.estimated,
    }


def _rank_object(rank: RankRecord, folder: str) -> dict[str, Any]:
    own = own_device(rank)
    return {
        "rank": rank.rank,
        "local_rank": rank.local_rank,
        "device": rank.device,
        "outcome": rank.outcome,
        "steps": rank.steps,
        "operators": rank.operators,
        "phases": list(rank.phases),
        "expected_phases": list(rank.expected_phases),
        "last_activity": rank.last_activity,
        "stack": msgspec.to_builtins(rank.stack),
        "parameter_count": rank.parameter_count,
        "peak_allocated_bytes": own.peak_allocated_bytes if own else 0,
        "peak_reserved_bytes": own.peak_reserved_bytes if own else 0,
        "peak_by_category": {category: own.by_category.get(category, 0) if own else 0 for category in CATEGORIES},
        "host_peak_bytes": rank.host.peak_bytes if rank.host else 0,
        "host_pinned_peak_bytes": rank.host.peak_pinned_bytes if rank.host else 0,
        "host_peak_by_category": dict(rank.host.by_category) if rank.host else {},
        "devices": [msgspec.to_builtins(device) for device in rank.devices],
        "collectives": {
            "count": sum(total.count for total in rank.collectives),
            "bytes": sum(total.bytes for total in rank.collectives),
            "by_operator": msgspec.to_builtins(rank.collectives),
        },
        "assumptions": [_placed(assumption, folder) for assumption in rank.assumptions],
        "unsupported": [_placed(unsupported, folder) for unsupported in rank.unsupported],
        "unused_parameters": list(rank.unused_parameters),
        "parameters_without_gradient": list(rank.parameters_without_gradient),
        "left_on_cpu": msgspec.to_builtins(rank.left_on_cpu),
        "failure": _failure_object(rank.failure, folder) if rank.failure else None,
        "events": list(rank.events),
    }


def own_device(rank: RankRecord) -> DeviceMemory | None:
    """The memory record of the rank's own device; the fullest one where it has none of its own; None without any."""
    own = next((device for device in rank.devices if device.device == rank.device), None)
    return own or max(rank.devices, key=lambda device: device.peak_allocated_bytes, default=None)


def _placed(entry: Assumption | Unsupported, folder: str) -> dict[str, Any]:
    return {**msgspec.to_builtins(entry), "where": seen_from(folder, entry.where)}


def _failure_object(failure: Failure, folder: str) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(failure),
        "user_frame": _frame_object(failure.innermost("user"), folder),
        "library_frame": _frame_object(failure.innermost("library"), folder),
    }


def _frame_object(frame: Frame | None, folder: str) -> dict[str, Any] | None:
    return {**msgspec.to_builtins(frame), "path": seen_from(folder, frame.path)} if frame else None


def seen_from(folder: str, path: str) -> str:
    """The path as it is seen from the folder: relative below it, else as it is."""
    inside = f"{folder.rstrip('/')}/"
    return path.removeprefix(inside) if folder else path
