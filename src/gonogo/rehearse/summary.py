"""The ``rehearsal`` object of the JSON report (schema gonogo.report/1), from the record. Sizes are bytes.

The keys of the contract are all there; what is beside them was added. ``seconds`` is the only value that differs
between two rehearsals of the same program.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gonogo.evidence.rehearsal import CATEGORIES, DeviceMemory, Failure, Frame, RankRecord, RehearsalRecord


def rehearsal_object(record: RehearsalRecord) -> dict[str, Any]:
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
        "ranks": [_rank_object(rank) for rank in record.ranks],
    }


def host_per_node(record: RehearsalRecord) -> dict[str, Any] | None:
    """Host memory of the fullest node: peaks of its ranks added up; None where no rank has a host record.

    A rank that was not run is taken to need what the neediest that was run needs, and ``estimated`` says so. The
    peaks of ranks need not fall together, so the sum is an upper bound.
    """
    measured = {rank.rank: rank.host for rank in record.ranks if rank.host is not None}
    if not measured:
        return None
    neediest = max(measured.values(), key=lambda host: host.peak_bytes)
    nodes = []
    for node in range(record.nodes):
        ranks = range(node * record.ranks_per_node, (node + 1) * record.ranks_per_node)
        hosts = [measured.get(rank, neediest) for rank in ranks]
        nodes.append((sum(host.peak_bytes for host in hosts), sum(host.peak_pinned_bytes for host in hosts)))
    peak, pinned = max(nodes)
    return {
        "peak_bytes": peak,
        "pinned_bytes": pinned,
        "capacity_bytes": record.host_memory_bytes,
        "estimated": len(measured) < record.world_size,
    }


def _rank_object(rank: RankRecord) -> dict[str, Any]:
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
        "assumptions": msgspec.to_builtins(rank.assumptions),
        "unsupported": msgspec.to_builtins(rank.unsupported),
        "unused_parameters": list(rank.unused_parameters),
        "parameters_without_gradient": list(rank.parameters_without_gradient),
        "left_on_cpu": msgspec.to_builtins(rank.left_on_cpu),
        "failure": _failure_object(rank.failure) if rank.failure else None,
        "events": list(rank.events),
    }


def own_device(rank: RankRecord) -> DeviceMemory | None:
    """The memory record of the rank's own device; the fullest one where it has none of its own; None without any."""
    own = next((device for device in rank.devices if device.device == rank.device), None)
    return own or max(rank.devices, key=lambda device: device.peak_allocated_bytes, default=None)


def _failure_object(failure: Failure) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(failure),
        "user_frame": _frame_object(failure.innermost("user")),
        "library_frame": _frame_object(failure.innermost("library")),
    }


def _frame_object(frame: Frame | None) -> dict[str, Any] | None:
    return msgspec.to_builtins(frame) if frame else None
