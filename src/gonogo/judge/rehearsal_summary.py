"""Builds the part of a report that describes a rehearsal, from its record."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from gonogo.evidence.environment.hardware import all_accelerators
from gonogo.evidence.rehearsal.host_memory import host_memory_by_node
from gonogo.evidence.rehearsal.life_table import life_report
from gonogo.evidence.rehearsal.record import (
    CATEGORIES,
    DeviceMemory,
    Failure,
    Frame,
    MemoryTimeline,
    RankRecord,
    RehearsalRecord,
    bytes_by_category,
)
from gonogo.evidence.rehearsal.result_table import result_report
from gonogo.finding import Finding, rehearsal
from gonogo.judge.routing import routing_band

_T = TypeVar("_T")


def rehearsal_summary(record: RehearsalRecord, folder: str) -> rehearsal.Rehearsal:
    """The record as reports show it; the user's paths are relative to ``folder`` if they are below it."""
    return rehearsal.Rehearsal(
        command=tuple(record.command),
        launcher=record.launcher,
        world_size=record.world_size,
        nodes=record.nodes,
        ranks_per_node=record.ranks_per_node,
        accelerator=record.accelerator.name,
        accelerator_bytes=record.accelerator.total_bytes,
        allowance_bytes=record.accelerator.allowance_bytes,
        steps=record.steps,
        seconds=round(record.seconds, 3),
        host_per_node=fullest_node_memory(record),
        versions=record.ranks[0].versions if record.ranks else {},
        divergence=record.divergence,
        ranks=tuple(_summarize_rank(rank, folder) for rank in record.ranks),
        life=life_report(record) or msgspec.UNSET,
        result=result_report(record) or msgspec.UNSET,
        gpus=_gpu_models(record),
    )


_MIN_BFLOAT16_CAPABILITY = (8, 0)
"""The lowest compute capability with bfloat16."""


def _gpu_models(record: RehearsalRecord) -> tuple[rehearsal.GpuModel, ...]:
    """The GPUs on which the program could run unchanged: those with the same device type, CUDA or NPU."""
    kind = next((rank.device.partition(":")[0] for rank in record.ranks), "cuda")
    return tuple(
        rehearsal.GpuModel(
            one.name,
            one.total_bytes,
            one.allowance_bytes,
            one.device_type != "cuda" or one.compute_capability >= _MIN_BFLOAT16_CAPABILITY,
        )
        for one in all_accelerators()
        if one.device_type == kind
    )


def fullest_node_memory(record: RehearsalRecord) -> rehearsal.NodeMemory | None:
    """Host memory of the fullest node on which ranks were rehearsed; None if no rank recorded host memory."""
    fullest = max(host_memory_by_node(record), key=lambda node: node.peak_bytes, default=None)
    if fullest is None:
        return None
    return rehearsal.NodeMemory(
        peak_bytes=fullest.peak_bytes,
        pinned_bytes=fullest.pinned_bytes,
        capacity_bytes=record.host_memory_bytes,
        ranks=fullest.ranks,
        estimated=fullest.is_estimated,
        percent=_percent(fullest.peak_bytes, record.host_memory_bytes) if record.host_memory_bytes else None,
    )


def _summarize_rank(rank: RankRecord, folder: str) -> rehearsal.RehearsedRank:
    own = memory_of_own_device(rank)
    return rehearsal.RehearsedRank(
        rank=rank.rank,
        local_rank=rank.local_rank,
        device=rank.device,
        outcome=rank.outcome,
        steps=rank.steps,
        operators=rank.operators,
        phases=tuple(rank.phases),
        expected_phases=tuple(rank.expected_phases),
        last_activity=rank.last_activity,
        stack=rank.stack,
        parameter_count=rank.parameter_count,
        peak_allocated_bytes=own.peak_allocated_bytes if own else 0,
        peak_reserved_bytes=own.peak_reserved_bytes if own else 0,
        peak_by_category=bytes_by_category([own.by_category.get(category, 0) if own else 0 for category in CATEGORIES]),
        host_peak_bytes=rank.host.peak_bytes if rank.host else 0,
        host_pinned_peak_bytes=rank.host.peak_pinned_bytes if rank.host else 0,
        host_peak_by_category=dict(rank.host.by_category) if rank.host else {},
        devices=tuple(_summarize_device(device) for device in rank.devices),
        collectives=rehearsal.Collectives(
            count=sum(total.count for total in rank.collectives),
            bytes=sum(total.bytes for total in rank.collectives),
            by_operator=tuple(rank.collectives),
        ),
        assumptions=tuple(msgspec.structs.replace(a, where=relative_path(folder, a.where)) for a in rank.assumptions),
        unsupported=tuple(
            rehearsal.NotRehearsed(u.what, relative_path(folder, u.where), u.why, u.why_zh) for u in rank.unsupported
        ),
        unused_parameters=tuple(rank.unused_parameters),
        parameters_without_gradient=tuple(rank.parameters_without_gradient),
        left_on_cpu=rank.left_on_cpu,
        failure=_failure_summary(rank.failure, folder) if rank.failure else None,
        certificate=_convert_record(rank.certificate, tuple[rehearsal.Obligation, ...])
        if rank.certificate
        else msgspec.UNSET,
        events=tuple(rank.events),
        as_run=rank.as_run,
        routing=_rank_routing_band(rank, own),
        timelines=tuple(_relative_timeline(timeline, folder) for timeline in rank.timelines),
        host_modules=tuple(rank.host.modules) if rank.host else (),
    )


def _rank_routing_band(
    rank: RankRecord, device_memory: DeviceMemory | None
) -> rehearsal.RoutingBand | msgspec.UnsetType:
    experts = rank.as_run.experts if rank.as_run is not None else msgspec.UNSET
    band = routing_band(device_memory, experts) if device_memory is not None and experts is not msgspec.UNSET else None
    return band if band is not None else msgspec.UNSET


def _summarize_device(device: DeviceMemory) -> rehearsal.Device:
    used = device.peak_reserved_bytes + device.allowance_bytes
    return msgspec.structs.replace(
        _convert_record(device, rehearsal.Device),
        phases=tuple(device.phases) if device.phases else msgspec.UNSET,
        percent=_percent(used, device.total_bytes),
        free_bytes=device.total_bytes - used,
    )


def _relative_timeline(timeline: MemoryTimeline, folder: str) -> MemoryTimeline:
    places = {place: relative_path(folder, place) for place in timeline.places}
    return msgspec.structs.replace(timeline, places=tuple(places[place] for place in timeline.places))


def _percent(part: int, total: int) -> float:
    return round(100 * part / total, 1) if total else 0.0


def memory_of_own_device(rank: RankRecord) -> DeviceMemory | None:
    """The memory record of the rank's own device, else of the fullest one; None if there is none."""
    own = next((device for device in rank.devices if device.device == rank.device), None)
    return own or max(rank.devices, key=lambda device: device.peak_allocated_bytes, default=None)


def _failure_summary(failure: Failure, folder: str) -> rehearsal.FailureSummary:
    return msgspec.structs.replace(
        _convert_record(failure, rehearsal.FailureSummary),
        user_frame=_relative_frame(failure.innermost("user"), folder),
        library_frame=_relative_frame(failure.innermost("library"), folder),
    )


def _relative_frame(frame: Frame | None, folder: str) -> Frame | None:
    return None if frame is None else msgspec.structs.replace(frame, path=relative_path(folder, frame.path))


def _convert_record(value: object, kind: type[_T]) -> _T:
    """A recorded value as the report's type, which has fields of the same names."""
    return msgspec.convert(value, kind, from_attributes=True)


def relative_path(folder: str, path: str) -> str:
    """The path relative to the folder if it is below it, else unchanged."""
    inside = f"{folder.rstrip('/')}/"
    return path.removeprefix(inside) if folder else path


def with_relative_paths(folder: str, finding: Finding) -> Finding:
    """The finding with the paths of its places relative to the folder."""
    spans = tuple(msgspec.structs.replace(span, path=relative_path(folder, span.path)) for span in finding.spans)
    return msgspec.structs.replace(finding, spans=spans)
