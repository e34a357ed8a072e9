"""The run compared with other settings, as rehearsed with ``--also``."""

from __future__ import annotations

import msgspec

from gonogo.finding import Report, translated
from gonogo.finding.rehearsal import AlsoRehearsed, Rehearsal
from gonogo.finding.words import size
from gonogo.report.table import Table
from gonogo.report.untrusted import clean_line

_TITLE = translated("With other settings")
_AS_ABOVE = translated("as rehearsed above")
_COLUMNS = (
    translated("settings"),
    translated("verdict"),
    translated("GPU memory used"),
    translated("of GPU"),
    translated("host memory used per node"),
    translated("time per step"),
    translated("tokens/s per GPU"),
)
_ESTIMATES_NOTE = translated("GPU memory of the first rank; time and speed are estimates")
_NO_VALUE = "-"


def also_table(report: Report, language: str) -> Table | None:
    """One row for the run itself, and one per ``--also``; None without ``--also``."""
    rehearsal = report.rehearsal
    if rehearsal is None or rehearsal.also is msgspec.UNSET:
        return None
    rows = [_own_row(report, rehearsal, language), *(_also_row(one, rehearsal) for one in rehearsal.also)]
    columns = tuple(column.in_language(language) for column in _COLUMNS)
    return Table(
        _TITLE.in_language(language),
        columns,
        tuple(rows),
        frozenset({2, 3, 4, 5, 6}),
        _ESTIMATES_NOTE.in_language(language),
    )


def _own_row(report: Report, rehearsal: Rehearsal, language: str) -> tuple[str, ...]:
    rank = rehearsal.ranks[0]
    node = rehearsal.host_per_node
    return (
        _AS_ABOVE.in_language(language),
        report.verdict.value,
        *_gpu_cells(rank.peak_reserved_bytes, rehearsal),
        size(node.peak_bytes) if node is not None else _NO_VALUE,
        *_speed_cells(rehearsal.seconds_of_step, rehearsal.tokens_per_second_per_gpu),
    )


def _also_row(one: AlsoRehearsed, rehearsal: Rehearsal) -> tuple[str, ...]:
    return (
        clean_line(", ".join(f"{name}={value}" for name, value in one.settings.items())),
        one.verdict,
        *_gpu_cells(one.peak_reserved_bytes, rehearsal),
        size(one.host_bytes_of_node) if one.host_bytes_of_node else _NO_VALUE,
        *_speed_cells(one.seconds_of_step, one.tokens_per_second_per_gpu),
    )


def _gpu_cells(reserved: int, rehearsal: Rehearsal) -> tuple[str, str]:
    if not reserved:
        return _NO_VALUE, _NO_VALUE
    used = reserved + rehearsal.allowance_bytes
    return size(used), f"{100 * used / rehearsal.accelerator_bytes:.0f} %"


def _speed_cells(seconds: float | None, tokens: float | None) -> tuple[str, str]:
    return f"{seconds:.3g} s" if seconds else _NO_VALUE, f"{tokens:,.0f}" if tokens else _NO_VALUE
