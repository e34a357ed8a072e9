"""What a reader is spared: remarks of one kind are one line, counted; beyond a few kinds they are only counted.

All of them are in ``--format json``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gonogo.finding import Report, Severity, Skipped, Text
from gonogo.finding.alike import Alike, group_alike

MAX_REMARKS = 5
"""Kinds of notes, and kinds of warnings and notes among the findings, that are shown."""
_MAX_NAMED = 3
"""Of what was not covered for one reason, those that are named."""
_VARIES = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"|\S*[/\\]\S*|\S*\d\S*|\w+\.\w+\S*")
"""What differs in a sentence from case to case: what is quoted, paths, numbers, names of files."""
_AND_ALIKE = Text("{note} (and {count} more like it)", "{note}（另有 {count} 条同类）")
_MORE_NOTES = Text("{count} more notes: --format json has all", "另有 {count} 条提示：--format json 列出全部")
_MORE_FINDINGS = Text(
    "{count} more warnings and notes ({names}): --format json has all",
    "另有 {count} 条警告和提示（{names}）：--format json 列出全部",
)
_NAMES_AND = Text("{names} and {count} more", "{names} 等，另有 {count} 项")


def notes_of(report: Report) -> list[Text]:
    """The notes of a report, one of each kind, counted."""
    kinds: dict[str, list[Text]] = {}
    for note in report.notes:
        kinds.setdefault(_VARIES.sub("…", note.en), []).append(note)
    lines = [
        alike[0] if len(alike) == 1 else _AND_ALIKE.format(note=alike[0], count=len(alike) - 1)
        for alike in kinds.values()
    ]
    if len(lines) <= MAX_REMARKS:
        return lines
    return [*lines[: MAX_REMARKS - 1], _MORE_NOTES.format(count=len(lines) - MAX_REMARKS + 1)]


def findings_of(report: Report) -> tuple[list[Alike], Text | None]:
    """The findings to show: all errors and risks, the first few warnings and notes; and what is said of the others."""
    found = group_alike(report.findings)
    remarks = [one for one in found if one.finding.severity is not Severity.ERROR]
    left = {id(one) for one in remarks[MAX_REMARKS:]}
    if not left:
        return found, None
    others = [one.finding for one in remarks[MAX_REMARKS:]]
    count = sum(1 + len(one.others) for one in remarks[MAX_REMARKS:])
    names = ", ".join(dict.fromkeys(one.hazard for one in others))
    return [one for one in found if id(one) not in left], _MORE_FINDINGS.format(count=count, names=names)


def skipped_of(report: Report) -> list[Skipped]:
    """What was not covered, in its order: for one reason one line, with the first few that it is about."""
    reasons: dict[Text, list[Text]] = {}
    for one in report.skipped:
        reasons.setdefault(one.why, []).append(one.what)
    return [Skipped(_named(whats), why) for why, whats in reasons.items()]


def _named(whats: Sequence[Text]) -> Text:
    if len(whats) <= _MAX_NAMED:
        return _joined(whats)
    return _NAMES_AND.format(names=_joined(whats[:_MAX_NAMED]), count=len(whats) - _MAX_NAMED)


def _joined(texts: Iterable[Text]) -> Text:
    several = list(texts)
    return Text("; ".join(one.en for one in several), "；".join(one.zh for one in several))
