"""Fills the user's own command into a report, so that the commands it suggests are complete."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from msgspec.structs import replace

from gonogo.finding import Finding, Report, Text
from gonogo.finding.call import Invocation

_COMMAND_PLACEHOLDERS = ("-- COMMAND", "-- 命令")
"""The placeholder in sentences that are written before the command is known; the latter only in Chinese."""


def with_invocation(report: Report, call: Invocation) -> Report:
    """The report with the invocation added; placeholders in its sentences become the user's own command."""
    report = replace(report, call=call)
    if not call.command:
        return report
    filled = _make_filler(shlex.join(call.command))
    return replace(
        report,
        findings=tuple(_fill_finding(one, filled) for one in report.findings),
        skipped=tuple(replace(one, what=filled(one.what), why=filled(one.why)) for one in report.skipped),
        notes=tuple(map(filled, report.notes)),
    )


def _make_filler(command: str) -> Callable[[Text], Text]:
    def fill_placeholders(text: Text) -> Text:
        for placeholder in _COMMAND_PLACEHOLDERS:
            if placeholder in text.en or placeholder in text.zh:
                text = Text(*(sentence.replace(placeholder, f"-- {command}") for sentence in (text.en, text.zh)))
        return text

    return fill_placeholders


def _fill_finding(finding: Finding, fill_text: Callable[[Text], Text]) -> Finding:
    filled = {
        "cause": fill_text(finding.cause),
        "cure": tuple(map(fill_text, finding.cure)),
        "confirm": tuple(map(fill_text, finding.confirm)),
    }
    return (
        replace(finding, **filled) if any(getattr(finding, name) != text for name, text in filled.items()) else finding
    )
