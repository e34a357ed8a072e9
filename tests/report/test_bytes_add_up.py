"""Figures hang together: what a report says of memory in one place adds up to what it says in another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Report
from gonogo.finding.rehearsal import Device, ModuleMemory
from gonogo.finding.words import size
from gonogo.rehearse.answer import rehearsal_report
from gonogo.report.answer.headline import make_headline
from gonogo.report.rehearsal import MAX_MODULES_SHOWN, largest_parts

RECORDS = sorted((Path(__file__).parent.parent / "hazards").glob("*/*.record.json"))
_ROUNDING = 0.002
"""The allocator rounds each block to 512 bytes, which belong to no tensor: of the whole, at most this share."""


def devices_of(report: Report) -> Iterator[Device]:
    assert report.rehearsal is not None
    for rank in report.rehearsal.ranks:
        yield from (device for device in rank.devices if device.peak_allocated_bytes)


def summed(modules: tuple[ModuleMemory, ...] | list[ModuleMemory]) -> Counter[str]:
    return sum((Counter(module.by_category) for module in modules), Counter[str]())


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
def test_every_byte_of_a_report_is_named_and_counted_once(path: Path) -> None:
    report = rehearsal_report(msgspec.json.decode(path.read_bytes(), type=RehearsalRecord))
    assert report.rehearsal is not None
    capacity = report.rehearsal.accelerator_bytes
    used = []
    for device in devices_of(report):
        held = sum(device.by_category.values())
        assert held <= device.peak_allocated_bytes <= device.peak_reserved_bytes
        assert device.peak_allocated_bytes - held <= max(_ROUNDING * device.peak_allocated_bytes, 1 << 20)
        assert device.total_bytes == capacity  # one capacity, wherever it is told
        assert device.peak_reserved_bytes + device.allowance_bytes + device.free_bytes == device.total_bytes
        used.append(device.total_bytes - device.free_bytes)
        if device.modules:
            assert summed(device.modules) == +Counter(device.by_category)
            assert summed(largest_parts(device.modules, MAX_MODULES_SHOWN)) == summed(device.modules)
    told = next((one.value.en for one in make_headline(report).figures if one.name.en == "GPU memory used"), None)
    if used:
        assert told is not None
        assert told.startswith(f"{size(max(used))} / {size(capacity)} ")
    for rank in report.rehearsal.ranks:
        if rank.host_modules:
            assert sum(summed(rank.host_modules).values()) == sum(rank.host_peak_by_category.values())


def test_there_are_ten_reports_to_add_up() -> None:
    reports = [rehearsal_report(msgspec.json.decode(path.read_bytes(), type=RehearsalRecord)) for path in RECORDS]
    assert sum(any(devices_of(report)) for report in reports) >= 10
