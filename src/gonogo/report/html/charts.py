"""The data of a page's charts: each device's memory over time, and the modules at the peak."""

from __future__ import annotations

from typing import Any

import msgspec

from gonogo.finding import Report
from gonogo.finding.rehearsal import Device, MemoryTimeline, ModuleMemory, RehearsedRank, group_by_phase
from gonogo.finding.text import Text, load_texts
from gonogo.finding.words import CATEGORIES, PHASE_NAMES
from gonogo.report.html.curves import curve_data
from gonogo.report.html.what_if import WORDS, what_if_data
from gonogo.report.table import short_place
from gonogo.report.untrusted import clean_line

_MAX_STALLS = 200
_CHART_LABELS: dict[str, Text] = {
    **CATEGORIES,
    **WORDS,
    **{f"phase {name}": text for name, text in PHASE_NAMES.items()},
    **load_texts(__file__),
}


def chart_data(report: Report) -> dict[str, Any]:
    """All data for the page's script; without a rehearsal only the labels."""
    return {
        "words": {
            language: {name: text.in_language(language) for name, text in _CHART_LABELS.items()}
            for language in ("en", "zh")
        },
        "timelines": [
            {**_timeline_data(rank, timeline), "capacity": _usable_device_bytes(report, rank, timeline.device)}
            for rank, timeline in timelines(report)
        ],
        "modules": _module_data(report),
        "steps": _guarded_steps_data(report),
        **({"whatIf": found} if (found := what_if_data(report)) is not None else {}),
        **({"compared": curve_data(report.comparison)} if report.comparison is not None else {}),
    }


def timelines(report: Report) -> list[tuple[int, MemoryTimeline]]:
    """(rank, timeline) of every device that held memory, accelerators first."""
    if report.rehearsal is None:
        return []
    found = [
        (rank.rank, timeline)
        for rank in report.rehearsal.ranks
        for timeline in rank.timelines
        if any(map(any, timeline.by_category.values()))
    ]
    return sorted(found, key=lambda pair: (pair[1].device == "cpu", pair[0]))


def has_modules(report: Report) -> bool:
    """Whether the peak of any device is attributed to modules."""
    return _fullest_device(report) is not None


def _timeline_data(rank: int, timeline: MemoryTimeline) -> dict[str, Any]:
    return {
        "rank": rank,
        "device": clean_line(timeline.device),
        "allocations": timeline.allocations,
        "held": timeline.by_category,
        "reserved": timeline.reserved if any(timeline.reserved) else [],
        "phases": group_by_phase(list(zip(timeline.phases, timeline.steps, strict=True))),
        "reached": timeline.reached_by,
        "modules": _index_texts(timeline.modules),
        "operators": _index_texts(timeline.operators),
        "places": _index_texts(tuple(map(short_place, timeline.places))),
    }


def _guarded_steps_data(report: Report) -> dict[str, Any] | None:
    """The steps of a guarded run's ranks, and where they stalled: [rank, step, seconds]."""
    run = report.guarded_run
    if run is None or run.over_time is None:
        return None
    return {
        **msgspec.to_builtins(run.over_time),
        "stalls": [[stall.rank, stall.step, stall.seconds] for stall in run.stalled[:_MAX_STALLS]],
    }


def _index_texts(texts: tuple[str, ...]) -> dict[str, Any]:
    """Deduplicated texts, and for each original text its index."""
    once = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return {"texts": [clean_line(text) for text in once], "of": [once[text] for text in texts]}


def _usable_device_bytes(report: Report, number: int, name: str) -> int:
    """Bytes that the caching allocator may use on the device; 0 for the host, which ranks share."""
    ranks = report.rehearsal.ranks if report.rehearsal is not None else ()
    devices = (device for rank in ranks if rank.rank == number for device in rank.devices if device.device == name)
    return next((device.total_bytes - device.allowance_bytes for device in devices), 0)


def _fullest_device(report: Report) -> tuple[RehearsedRank, Device] | None:
    if report.rehearsal is None:
        return None
    devices = [(rank, device) for rank in report.rehearsal.ranks for device in rank.devices if device.modules]
    return max(devices, key=lambda pair: pair[1].peak_allocated_bytes, default=None)


def _module_data(report: Report) -> dict[str, Any]:
    """``lists`` of [path, bytes by category, count] at peaks, and ``of``: each timeline's index into them.

    The first list is that of the fullest device: it is shown if there is no timeline, or its modules are unknown.
    """
    fullest = _fullest_device(report)
    shown: list[tuple[ModuleMemory, ...]] = [fullest[1].modules if fullest is not None else ()]
    of = []
    for rank, timeline in timelines(report):
        modules = _held_at_peak(report, rank, timeline.device)
        if modules and modules not in shown:
            shown.append(modules)
        of.append(shown.index(modules) if modules else 0)
    lists = [[[clean_line(part.module), part.by_category, part.count] for part in modules] for modules in shown]
    return {"lists": lists, "of": of}


def _held_at_peak(report: Report, number: int, name: str) -> tuple[ModuleMemory, ...]:
    ranks = report.rehearsal.ranks if report.rehearsal is not None else ()
    for rank in ranks:
        if rank.rank == number and name == "cpu":
            return rank.host_modules
        if rank.rank == number:
            return next((device.modules for device in rank.devices if device.device == name), ())
    return ()
