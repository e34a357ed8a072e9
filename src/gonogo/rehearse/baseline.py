"""Compares two rehearsals: ``gonogo compare``, and ``--against``, a CI gate on the verdict and on memory."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Report, Text, UserError, Verdict, translated
from gonogo.finding.ranks import format_ranges, ranks_text
from gonogo.finding.rehearsal import (
    ComparedValue,
    CurvePair,
    MemoryCurve,
    RehearsalComparison,
    ReportDifference,
    downsample_timeline,
)
from gonogo.finding.words import CATEGORIES, size

_VERDICT_ORDER = [Verdict.GO, Verdict.CANNOT_TELL, Verdict.NO_GO]
_MIN_DIFFERENCE_BYTES = 64 << 20
"""Smaller changes of a peak are ignored: allocators and versions alone can cause them."""
_REPORT_IN_PAGE_PATTERN = re.compile(rb'<script type="application/json" id="report">(.*?)</script>', re.DOTALL)
_CHINESE_PATTERN = re.compile("[\u4e00-\u9fff]")
_MIN_FACTOR = 10
"""From here on a growth is a factor, no longer a percentage."""
_MIN_SPEED_DIFFERENCE = 0.01
"""Smaller relative changes of a step's estimated time are ignored."""


_DifferenceKind = Literal["finding", "assumption", "covered", "skipped"]


class _Device(msgspec.Struct):
    """The fields of a device in a JSON report that a comparison reads."""

    device: str
    total_bytes: int = 0
    allowance_bytes: int = 0


class _Assumption(msgspec.Struct):
    what: str
    where: str = ""
    what_zh: str = ""


class _RankReport(msgspec.Struct):
    rank: int
    peak_reserved_bytes: int
    outcome: str = "completed"
    peak_allocated_bytes: int = 0
    peak_by_category: dict[str, int] = {}
    devices: list[_Device] = []
    assumptions: list[_Assumption] = []
    memory_over_time: list[MemoryCurve] = []


class _HostMemory(msgspec.Struct):
    peak_bytes: int


class _Rehearsal(msgspec.Struct):
    accelerator: str
    world_size: int
    ranks: list[_RankReport]
    host_per_node: _HostMemory | None = None
    command: list[str] = []
    steps: int = 0
    versions: dict[str, str] = {}
    seconds_of_step: float | None = None
    tokens_per_second_per_gpu: float | None = None


class _Span(msgspec.Struct):
    path: str


class _Finding(msgspec.Struct):
    hazard: str
    title: str
    spans: list[_Span] = []


class _Skipped(msgspec.Struct):
    what: str
    why: str = ""


class _NextStep(msgspec.Struct):
    """The command that the earlier report proposes as the next one, and what it is for."""

    next: str = ""
    next_does: str = ""
    next_purpose: str = ""
    next_details: dict[str, str] = {}


class BaselineReport(msgspec.Struct):
    """The parts of a rehearsal's JSON report that are compared; ``path`` is the user's file."""

    verdict: Verdict
    rehearsal: _Rehearsal | None = None
    findings: list[_Finding] = []
    covered: list[str] = []
    skipped: list[_Skipped] = []
    answer: _NextStep = msgspec.field(default_factory=_NextStep)
    command: str = ""
    path: str = ""


def read_baseline(path: Path, label: str = "--against ") -> BaselineReport:
    """A rehearsal's report as written by ``--format json``. ``label`` is the option for errors. Raises UserError."""
    return read_report(SourceFile.read(path).data, str(path), label)


def read_report(data: bytes, name: str, label: str = "") -> BaselineReport:
    """A rehearsal's report, as JSON or as an HTML page with embedded JSON. Raises UserError with ``name``."""
    page = _REPORT_IN_PAGE_PATTERN.search(data)
    try:
        document: Any = json.loads(page[1] if page is not None else data)
        earlier = msgspec.convert(document, BaselineReport, strict=False)
        if document["schema"] != "gonogo.report/1" or (earlier.rehearsal is None and earlier.command != "rehearse"):
            raise ValueError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UserError(_NOT_A_REPORT.format(label=label, path=name)) from None
    earlier.path = name
    return earlier


def compare_files(before: Path, after: Path, growth: float) -> Report:
    """The report of ``gonogo compare``: the later report's verdict, and the changes since the earlier one."""
    return compare_reports(read_baseline(before, ""), read_baseline(after, ""), growth)


def compare_reports(was: BaselineReport, now: BaselineReport, growth: float) -> Report:
    """Like :func:`compare_files`, for two reports that have been read."""
    comparison = compare_baselines(was, now, growth)
    regressed = comparison.reasons if comparison.judged == "regressed" else ()
    return Report(
        "compare", now.verdict, notes=_machine_difference_notes(was, now), regressed=regressed, comparison=comparison
    )


def compare_with_baseline(report: Report, earlier: BaselineReport, growth: float) -> Report:
    """The report with the changes since the earlier one; ``regressed`` has the reasons why it doesn't pass."""
    now = _to_baseline(report, "zh" if _is_chinese(earlier) else "en")
    comparison = compare_baselines(earlier, now, growth)
    worse = tuple(
        _AGAINST.format(path=earlier.path, what=reason)
        for reason in (comparison.reasons if comparison.judged == "regressed" else ())
    )
    held = () if worse else (_NOT_WORSE.format(path=earlier.path, allowed=f"{growth:g} %"),)
    notes = (*report.notes, *_machine_difference_notes(earlier, now), *held, *worse)
    return msgspec.structs.replace(report, notes=notes, regressed=worse, comparison=comparison)


def compare_baselines(was: BaselineReport, now: BaselineReport, growth: float) -> RehearsalComparison:
    """What changed between two reports.

    It has regressed if the verdict is worse or a peak has grown by more than ``growth`` per cent. Otherwise it is
    better if the verdict is better or a peak has shrunk by as much. Only peaks of ranks that completed in both count.
    """
    worse: list[Text] = []
    better: list[Text] = []
    step = _VERDICT_ORDER.index(now.verdict) - _VERDICT_ORDER.index(was.verdict)
    if step:
        text = _VERDICT_CHANGED.format(was=was.verdict.value, now=now.verdict.value)
        (worse if step > 0 else better).append(text)
    changes = [
        ComparedValue(
            _VERDICT,
            _untranslated(was.verdict.value),
            _untranslated(now.verdict.value),
            judged="worse" if step > 0 else "better",
        )
        if step
        else ComparedValue(_VERDICT, _untranslated(was.verdict.value), _untranslated(now.verdict.value))
    ]
    before, after = was.rehearsal, now.rehearsal
    if before is not None and after is not None:
        for change, reason in _compared_values(before, after, growth):
            changes.append(change)
            if reason is not None:
                (worse if change.judged == "worse" else better).append(reason)
        changes += _setting_changes(before, after)
    judged: Literal["same", "better", "regressed"] = "regressed" if worse else "better" if better else "same"
    return RehearsalComparison(
        judged,
        was.path,
        now.path,
        was.verdict.value,
        now.verdict.value,
        growth,
        tuple(worse or better),
        tuple(changes),
        tuple(_differences(was, now)),
        _has_complete_rank(before, after),
        _pair_memory_curves(before, after),
        now.answer.next,
        now.answer.next_does,
        now.answer.next_purpose,
        now.answer.next_details,
    )


def _to_baseline(report: Report, language: str) -> BaselineReport:
    """A report as if it had been read from a file in the language."""
    found = report.rehearsal
    rehearsal = msgspec.convert(found, _Rehearsal, from_attributes=True) if found is not None else None
    for mine, rank in zip(rehearsal.ranks, found.ranks, strict=True) if found and rehearsal else ():
        mine.memory_over_time = [downsample_timeline(timeline) for timeline in getattr(rank, "timelines", ())]
    return BaselineReport(
        report.verdict,
        rehearsal,
        [
            _Finding(one.hazard, one.title.in_language(language), [_Span(span.path) for span in one.spans])
            for one in report.findings
        ],
        [one.in_language(language) for one in report.covered],
        [_Skipped(one.what.in_language(language), one.why.in_language(language)) for one in report.skipped],
        command=report.command,
    )


def _is_chinese(report: BaselineReport) -> bool:
    """Whether a report's sentences are in Chinese, which the file doesn't state."""
    return any(_CHINESE_PATTERN.search(text) for text in (*report.covered, *(one.what for one in report.skipped)))


def _machine_difference_notes(was: BaselineReport, now: BaselineReport) -> tuple[Text, ...]:
    """A note if the machines differ; the reports are compared anyway."""
    before, after = was.rehearsal, now.rehearsal
    if before is None or after is None:
        return ()
    if (before.accelerator, before.world_size) == (after.accelerator, after.world_size):
        return ()
    return (_OTHER_MACHINE.format(path=was.path, was=_describe_machine(before), now=_describe_machine(after)),)


def _describe_machine(rehearsal: _Rehearsal) -> str:
    return f"{rehearsal.world_size} x {rehearsal.accelerator}"


def _compared_values(
    before: _Rehearsal, after: _Rehearsal, growth: float
) -> Iterator[tuple[ComparedValue, Text | None]]:
    """A row, and the reason if it counts, for each peak and its parts, for host memory and for the speed."""
    old_ranks, new_ranks = ({rank.rank: rank for rank in one.ranks} for one in (before, after))
    alike: dict[tuple[bool, tuple[tuple[str, int, int], ...]], list[int]] = {}
    for rank in sorted(old_ranks.keys() & new_ranks.keys()):
        pair = old_ranks[rank], new_ranks[rank]
        alike.setdefault((all(map(_has_whole_run_peaks, pair)), _peak_rows(*pair)), []).append(rank)
    for (is_whole, peaks), ranks in alike.items():
        text = ranks_text(ranks)
        for name, old, new in peaks:
            if name == "reserved":
                what = _PEAK.format(ranks=text)
                judged = _classify_change(old, new, growth) if is_whole else ""
                reason = _PEAK_CHANGED.format(
                    what=what, how=_GREW if new > old else _SHRANK, old=size(old), new=size(new),
                    share=_relative_change(old, new), allowed=f"{growth:g} %",
                )  # fmt: skip
                yield _bytes_row(what, old, new, judged, is_headline=True), reason if judged else None
            else:
                yield _bytes_row(_PART_OF_RANKS.format(ranks=text, part=_PART_LABELS[name]), old, new), None
    if before.host_per_node is not None and after.host_per_node is not None:
        old, new = before.host_per_node.peak_bytes, after.host_per_node.peak_bytes
        judged = (
            _classify_change(old, new, growth) if all(map(_has_whole_run_peaks, (*before.ranks, *after.ranks))) else ""
        )
        reason = _PEAK_CHANGED.format(
            what=_HOST_MEMORY_LABEL, how=_GREW if new > old else _SHRANK, old=size(old), new=size(new),
            share=_relative_change(old, new), allowed=f"{growth:g} %",
        )  # fmt: skip
        yield _bytes_row(_HOST_MEMORY_LABEL, old, new, judged, is_headline=True), reason if judged else None
    speeds = (
        (_STEP_TIME_LABEL, before.seconds_of_step, after.seconds_of_step, "{:.3g} s"),
        (_TOKENS_PER_SECOND_LABEL, before.tokens_per_second_per_gpu, after.tokens_per_second_per_gpu, "{:,.0f}"),
    )
    for what, was, now, form in speeds:
        if was is not None and now is not None:
            differs = abs(now - was) > _MIN_SPEED_DIFFERENCE * was
            change = _untranslated(f"{(now - was) / was:+.1%}" if differs and was else "")
            yield (
                ComparedValue(
                    what, _untranslated(form.format(was)), _untranslated(form.format(now)), change, is_headline=True
                ),
                None,
            )


def _has_whole_run_peaks(rank: _RankReport) -> bool:
    """Whether the rank's peaks cover a whole run; a rank that died has peaks only up to its death."""
    return rank.outcome == "completed"


def _has_complete_rank(before: _Rehearsal | None, after: _Rehearsal | None) -> bool:
    if before is None or after is None:
        return False
    whole = [{rank.rank for rank in one.ranks if _has_whole_run_peaks(rank)} for one in (before, after)]
    return bool(whole[0] & whole[1])


def _peak_rows(old: _RankReport, new: _RankReport) -> tuple[tuple[str, int, int], ...]:
    rows = [("reserved", old.peak_reserved_bytes, new.peak_reserved_bytes)]
    if old.peak_allocated_bytes and new.peak_allocated_bytes:
        rows.append(("allocated", old.peak_allocated_bytes, new.peak_allocated_bytes))
    for name in CATEGORIES:
        held = old.peak_by_category.get(name, 0), new.peak_by_category.get(name, 0)
        if any(held) and old.peak_by_category and new.peak_by_category:
            rows.append((name, *held))
    return tuple(rows)


def _classify_change(old: int, new: int, growth: float) -> Literal["", "better", "worse"]:
    if abs(new - old) <= max(old * growth / 100, _MIN_DIFFERENCE_BYTES):
        return ""
    return "worse" if new > old else "better"


def _bytes_row(
    label: Text, old: int, new: int, judgement: Literal["", "better", "worse"] = "", is_headline: bool = False
) -> ComparedValue:
    if size(old) == size(new):
        return ComparedValue(
            label, _untranslated(size(old)), _untranslated(size(new)), judged=judgement, is_headline=is_headline
        )
    sign = "+" if new > old else "-"
    share = _relative_change(old, new)
    change = Text(f"{sign}{size(abs(new - old))} ({share})", f"{sign}{size(abs(new - old))}（{share}）")
    return ComparedValue(label, _untranslated(size(old)), _untranslated(size(new)), change, judgement, is_headline)


def _relative_change(old: int, new: int) -> str:
    if not old:
        return "∞"
    return f"x{new / old:,.0f}" if new >= _MIN_FACTOR * old else f"{(new - old) / old:+.1%}"


def _untranslated(message: str) -> Text:
    return Text(message, message)


def _setting_changes(before: _Rehearsal, after: _Rehearsal) -> list[ComparedValue]:
    """Rows for the settings that differ: the machine, the command, packages."""
    rows = [
        (_GPUS_LABEL, _describe_machine(before), _describe_machine(after)),
        (_COMMAND, shlex.join(before.command), shlex.join(after.command)),
        (_STEPS, str(before.steps), str(after.steps)),
        (_RANKS, _rank_numbers(before), _rank_numbers(after)),
    ]
    packages = sorted(before.versions.keys() | after.versions.keys())
    rows += [(_untranslated(name), before.versions.get(name, "-"), after.versions.get(name, "-")) for name in packages]
    return [ComparedValue(what, _untranslated(old), _untranslated(new)) for what, old, new in rows if old != new]


def _rank_numbers(rehearsal: _Rehearsal) -> str:
    return format_ranges(rank.rank for rank in rehearsal.ranks) or "-"


def _differences(was: BaselineReport, now: BaselineReport) -> Iterator[ReportDifference]:
    """Findings, assumptions and coverage that only one of the reports has.

    Two findings are the same if hazard and file are, because lines move. Coverage consists of sentences, which are
    comparable only in the same language.
    """
    sides: list[tuple[_DifferenceKind, dict[Any, Text], dict[Any, Text]]] = [
        ("finding", _finding_texts(was), _finding_texts(now)),
        ("assumption", _assumption_texts(was), _assumption_texts(now)),
    ]
    if _is_chinese(was) == _is_chinese(now):
        sides.append(
            (
                "covered",
                {one: _untranslated(one) for one in was.covered},
                {one: _untranslated(one) for one in now.covered},
            )
        )
        sides.append(("skipped", _skipped_texts(was), _skipped_texts(now)))
    for kind, old, new in sides:
        yield from (ReportDifference(kind, True, new[key]) for key in new if key not in old)
        yield from (ReportDifference(kind, False, old[key]) for key in old if key not in new)


def _finding_texts(report: BaselineReport) -> dict[Any, Text]:
    return {
        (one.hazard, one.spans[0].path if one.spans else ""): Text(
            f"{one.title} ({one.hazard})", f"{one.title}（{one.hazard}）"
        )
        for one in report.findings
    }


def _skipped_texts(report: BaselineReport) -> dict[Any, Text]:
    return {one.what: Text(f"{one.what}: {one.why}", f"{one.what}：{one.why}") for one in report.skipped}


def _assumption_texts(report: BaselineReport) -> dict[Any, Text]:
    ranks = report.rehearsal.ranks if report.rehearsal is not None else ()
    return {
        (one.what, one.where.rpartition(":")[0]): Text(
            f"{one.what} ({one.where})", f"{one.what_zh or one.what}（{one.where}）"
        )
        for rank in ranks
        for one in rank.assumptions
    }


def _pair_memory_curves(before: _Rehearsal | None, after: _Rehearsal | None) -> tuple[CurvePair, ...]:
    """Memory over time of each device that both reports have, the host last."""
    if before is None or after is None:
        return ()
    old_ranks = {rank.rank: rank for rank in before.ranks}
    found: list[CurvePair] = []
    for rank in after.ranks:
        olds = {curve.device: curve for curve in getattr(old_ranks.get(rank.rank), "memory_over_time", ())}
        room = {one.device: one.total_bytes - one.allowance_bytes for one in rank.devices}
        found += [
            CurvePair(rank.rank, olds[curve.device], curve, max(room.get(curve.device, 0), 0))
            for curve in rank.memory_over_time
            if curve.device in olds and curve.phases and olds[curve.device].phases
        ]
    return tuple(sorted(found, key=lambda pair: (pair.after.device == "cpu", pair.rank)))


_NOT_A_REPORT = translated(
    "{label}{path}: not a rehearsal report: write one with gonogo rehearse --format json --output {path}"
)
_VERDICT = translated("verdict")
_PEAK = translated("reserved GPU memory of {ranks}")
_HOST_MEMORY_LABEL = translated("host memory per node")
_PART_OF_RANKS = translated("{part}, {ranks}")
_PART_LABELS = {"allocated": translated("allocated"), **CATEGORIES}
_STEP_TIME_LABEL = translated("time per step (estimate)")
_TOKENS_PER_SECOND_LABEL = translated("tokens/s per GPU (estimate)")
_GPUS_LABEL = translated("GPUs")
_COMMAND = translated("command")
_STEPS = translated("steps rehearsed")
_RANKS = translated("ranks rehearsed")
_VERDICT_CHANGED = translated("the verdict is {now}; it was {was}")
_GREW = translated("grew")
_SHRANK = translated("fell")
_PEAK_CHANGED = translated("the peak of {what} {how} from {old} to {new} ({share}; limit: {allowed})")
_AGAINST = translated("against {path}: {what}")
_OTHER_MACHINE = translated("against {path}: rehearsed on {now}, the earlier report on {was}")
_NOT_WORSE = translated("against {path}: the verdict is no worse, and no peak grew by more than {allowed}")
