"""Groups what is alike: findings of one hazard with their places, notes of one kind with a count, reasons.

Only text output is grouped; ``--format json`` contains everything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from gonogo.finding import Finding, Report, Severity, Skipped, Text, translated
from gonogo.finding.text import join_texts

_MAX_SHOWN_SEPARATELY = 3
"""Up to this many of a kind are each shown in full."""
_MAX_SHOWN = 20
"""Maximum number of places shown in a list."""
_SAME_AT_MORE_LOCATIONS = translated("The same at {count} more locations")
_MORE_LOCATIONS = translated("and {count} more: gonogo check --format json lists them all")


class FindingGroup(msgspec.Struct, frozen=True):
    """A finding, and the others of its kind that are shown with it."""

    finding: Finding
    others: tuple[Finding, ...] = ()

    def heading(self, language: str) -> str:
        """The heading above the list of the other findings' places."""
        return _SAME_AT_MORE_LOCATIONS.format(count=len(self.others)).in_language(language)

    def places(self, language: str) -> list[str]:
        """The places of the other findings, and how many of them aren't shown."""
        found = [f"{one.spans[0].path}:{one.spans[0].line}" for one in self.others[:_MAX_SHOWN]]
        rest = len(self.others) - len(found)
        return [*found, _MORE_LOCATIONS.format(count=rest).in_language(language)] if rest else found


def group_findings(findings: Sequence[Finding]) -> list[FindingGroup]:
    """The findings in order; more than three of one hazard with equal certainty and a place are merged into one."""
    kinds: dict[object, list[Finding]] = {}
    for number, finding in enumerate(findings):
        alone = not finding.spans or finding.ranks or finding.module
        key = number if alone else (finding.hazard, finding.severity, finding.certainty)
        kinds.setdefault(key, []).append(finding)
    whole = {id(one) for kind in kinds.values() for one in (kind if len(kind) <= _MAX_SHOWN_SEPARATELY else kind[:1])}
    first = {id(kind[0]): tuple(kind[1:]) for kind in kinds.values() if len(kind) > _MAX_SHOWN_SEPARATELY}
    return [FindingGroup(one, first.get(id(one), ())) for one in findings if id(one) in whole]


MAX_SHOWN_NOTES = 5
"""Maximum number of kinds of notes, and of kinds of warnings and notes among the findings, that are shown."""
_MAX_NAMED_SUBJECTS = 3
"""Maximum number of uncovered items named for one reason."""
_VARIABLE_PART_PATTERN = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"|\S*[/\\]\S*|\S*\d\S*|\w+\.\w+\S*")
"""The parts of a sentence that vary: quoted text, paths, numbers, file names."""
_AND_SIMILAR_NOTES = translated("{note} (and {count} more like it)")
_MORE_NOTES = translated("{count} more notes: --format json lists them all")
_MORE_FINDINGS = translated("{count} more warnings and notes ({names}): --format json lists them all")
_NAMES_AND_MORE = translated("{names} and {count} more")


def grouped_notes(report: Report) -> list[Text]:
    """A report's notes; those of one kind are merged into one with a count."""
    kinds: dict[str, list[Text]] = {}
    for note in report.notes:
        kinds.setdefault(_VARIABLE_PART_PATTERN.sub("…", note.en), []).append(note)
    lines = [
        alike[0] if len(alike) == 1 else _AND_SIMILAR_NOTES.format(note=alike[0], count=len(alike) - 1)
        for alike in kinds.values()
    ]
    if len(lines) <= MAX_SHOWN_NOTES:
        return lines
    return [*lines[: MAX_SHOWN_NOTES - 1], _MORE_NOTES.format(count=len(lines) - MAX_SHOWN_NOTES + 1)]


def shown_findings(report: Report) -> tuple[list[FindingGroup], Text | None]:
    """The findings to show: all errors and risks, the first few warnings and notes; and a note about the others."""
    found = group_findings(report.findings)
    remarks = [one for one in found if one.finding.severity is not Severity.ERROR]
    left = {id(one) for one in remarks[MAX_SHOWN_NOTES:]}
    if not left:
        return found, None
    others = [one.finding for one in remarks[MAX_SHOWN_NOTES:]]
    count = sum(1 + len(one.others) for one in remarks[MAX_SHOWN_NOTES:])
    names = ", ".join(dict.fromkeys(one.hazard for one in others))
    return [one for one in found if id(one) not in left], _MORE_FINDINGS.format(count=count, names=names)


def grouped_skipped(report: Report) -> list[Skipped]:
    """What was not covered, in order: one line per reason, with the first few items that it applies to."""
    reasons: dict[Text, list[Text]] = {}
    for one in report.skipped:
        reasons.setdefault(one.why, []).append(one.what)
    return [Skipped(_join_subjects(whats), why) for why, whats in reasons.items()]


def _join_subjects(subjects: Sequence[Text]) -> Text:
    if len(subjects) <= _MAX_NAMED_SUBJECTS:
        return join_texts(subjects, "; ", "；")
    return _NAMES_AND_MORE.format(
        names=join_texts(subjects[:_MAX_NAMED_SUBJECTS], "; ", "；"), count=len(subjects) - _MAX_NAMED_SUBJECTS
    )
