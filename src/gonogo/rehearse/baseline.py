"""A rehearsal held against an earlier one: a gate for CI, which lets neither memory nor the verdict slip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Report, Text, Verdict
from gonogo.finding.errors import UserError
from gonogo.finding.words import size

_ORDER = [Verdict.GO, Verdict.CANNOT_TELL, Verdict.NO_GO]
_BELOW = 64 << 20
"""Bytes by which a peak may grow in any case: allocators and versions move it by so much."""


class _Rank(msgspec.Struct):
    rank: int
    peak_reserved_bytes: int


class _Host(msgspec.Struct):
    peak_bytes: int


class _Rehearsal(msgspec.Struct):
    accelerator: str
    world_size: int
    ranks: list[_Rank]
    host_per_node: _Host | None = None


class BaselineReport(msgspec.Struct):
    """What an earlier report says; ``path`` is the user's file."""

    verdict: Verdict
    rehearsal: _Rehearsal
    path: str = ""


def read_earlier(path: Path) -> BaselineReport:
    """The report of an earlier rehearsal, as ``--format json`` wrote it. Raises UserError."""
    source = SourceFile.read(path)
    try:
        document: Any = json.loads(source.data)
        earlier = msgspec.convert(document, BaselineReport, strict=False)
        if document["schema"] != "gonogo.report/1":
            raise ValueError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UserError(
            Text(
                "--against {path}: not a rehearsal report: write one with gonogo rehearse --format json "
                "--output {path}",
                "--against {path}：不是排练报告：请用 gonogo rehearse --format json --output {path} 写出",
            ).format(path=path)
        ) from None
    earlier.path = str(path)
    return earlier


def compare_with_baseline(report: Report, earlier: BaselineReport, growth: float) -> tuple[Report, bool]:
    """The report with what has become of the earlier one, and whether it may pass.

    ``growth``: per cent by which a peak may grow. It passes where the verdict is no worse, and no peak has grown by
    more; ranks are compared that both have. Another accelerator or world is told, and compared all the same.
    """
    notes, passes = [], True
    if _ORDER.index(report.verdict) > _ORDER.index(earlier.verdict):
        passes = False
        notes.append(_WORSE.format(path=earlier.path, was=earlier.verdict.value, now=report.verdict.value))
    now = report.rehearsal
    if now is None:
        return msgspec.structs.replace(report, notes=(*report.notes, *notes)), passes
    was = earlier.rehearsal
    if (was.accelerator, was.world_size) != (now.accelerator, now.world_size):
        before_was, now_is = (f"{one.world_size} x {one.accelerator}" for one in (was, now))
        notes.append(_OTHER.format(path=earlier.path, was=before_was, now=now_is))
    before = {rank.rank: rank.peak_reserved_bytes for rank in was.ranks}
    peaks = [
        (_PEAK.format(rank=rank.rank), before[rank.rank], rank.peak_reserved_bytes)
        for rank in now.ranks
        if rank.rank in before
    ]
    if was.host_per_node is not None and now.host_per_node is not None:
        peaks.append((_HOST, was.host_per_node.peak_bytes, now.host_per_node.peak_bytes))
    for what, old, new in peaks:
        too_much = new - old > max(old * growth / 100, _BELOW)
        passes = passes and not too_much
        if too_much:
            share = f"{(new - old) / old:+.1%}" if old else "∞"
            notes.append(
                _GREW.format(
                    path=earlier.path, what=what, old=size(old), new=size(new), share=share, allowed=f"{growth:g} %"
                )
            )
    if passes:
        notes.append(_HELD.format(path=earlier.path, allowed=f"{growth:g} %"))
    return msgspec.structs.replace(report, notes=(*report.notes, *notes)), passes


_PEAK = Text("GPU memory of rank {rank}", "rank {rank} 的 GPU 显存")
_HOST = Text("host memory per node", "节点的主机内存")
_WORSE = Text("against {path}: {now}, was {was}", "与 {path} 相比：现在是 {now}，之前是 {was}")
_OTHER = Text(
    "against {path}: rehearsed on {now}, the earlier report on {was}",
    "与 {path} 相比：之前在 {was} 上排练，这次在 {now} 上",
)
_GREW = Text(
    "against {path}: the peak of {what} grew from {old} to {new} ({share}; limit: {allowed})",
    "与 {path} 相比：{what}的峰值从 {old} 增加到 {new}（{share}，允许 {allowed}）",
)
_HELD = Text(
    "against {path}: the verdict is no worse, and no peak grew by more than {allowed}",
    "与 {path} 相比：结论没有变差，峰值增长都不超过 {allowed}",
)
