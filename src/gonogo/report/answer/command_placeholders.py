"""A report joined with what was asked, so that what it tells the user to do next is complete."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from msgspec.structs import replace

from gonogo.finding import Finding, Report, Skipped, Text
from gonogo.finding.call import Invocation

_PLACEHOLDER = "-- COMMAND"
"""How a sentence that is written before the command is known speaks of it."""


def called(report: Report, call: Invocation) -> Report:
    """The report with what was asked; its sentences name the user's own command where they left room for one."""
    report = replace(report, call=call)
    if not call.command:
        return report
    filled = _make_filler(shlex.join(call.command))
    return replace(
        report,
        findings=tuple(_finding(one, filled) for one in report.findings),
        skipped=tuple(Skipped(filled(one.what), filled(one.why)) for one in report.skipped),
        notes=tuple(map(filled, report.notes)),
    )


def _make_filler(command: str) -> Callable[[Text], Text]:
    def filled(text: Text) -> Text:
        if _PLACEHOLDER not in text.en and _PLACEHOLDER not in text.zh:
            return text
        return Text(*(said.replace(_PLACEHOLDER, f"-- {command}") for said in (text.en, text.zh)))

    return filled


def _finding(finding: Finding, fill_text: Callable[[Text], Text]) -> Finding:
    said = {
        "cause": fill_text(finding.cause),
        "cure": tuple(map(fill_text, finding.cure)),
        "confirm": tuple(map(fill_text, finding.confirm)),
    }
    return replace(finding, **said) if any(getattr(finding, name) != text for name, text in said.items()) else finding
