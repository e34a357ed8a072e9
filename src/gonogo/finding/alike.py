"""Findings of one hazard that differ only in their place: told once, with the list of places."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gonogo.finding import Finding, Text

_FEW = 3
"""So many of a kind are each shown in full."""
_MAX_SHOWN = 20
"""Places of a list that are shown."""
_ALSO = Text("The same at {count} more locations", "另有 {count} 处相同")
_REST = Text(
    "and {count} more: gonogo check --format json lists all", "另有 {count} 处：gonogo check --format json 列出全部"
)


class Alike(msgspec.Struct, frozen=True):
    """A finding, and the others of its kind that are told with it."""

    finding: Finding
    others: tuple[Finding, ...] = ()

    def heading(self, language: str) -> str:
        """What stands above the list of the other places."""
        return _ALSO.format(count=len(self.others)).in_language(language)

    def places(self, language: str) -> list[str]:
        """Where the others stand, and how many are not shown."""
        found = [f"{one.spans[0].path}:{one.spans[0].line}" for one in self.others[:_MAX_SHOWN]]
        rest = len(self.others) - len(found)
        return [*found, _REST.format(count=rest).in_language(language)] if rest else found


def group_alike(findings: Sequence[Finding]) -> list[Alike]:
    """The findings in their order; of more than three of a hazard, equally sure and with a place, one with a list."""
    kinds: dict[object, list[Finding]] = {}
    for number, finding in enumerate(findings):
        alone = not finding.spans or finding.ranks or finding.module
        key = number if alone else (finding.hazard, finding.severity, finding.certainty)
        kinds.setdefault(key, []).append(finding)
    whole = {id(one) for kind in kinds.values() for one in (kind if len(kind) <= _FEW else kind[:1])}
    first = {id(kind[0]): tuple(kind[1:]) for kind in kinds.values() if len(kind) > _FEW}
    return [Alike(one, first.get(id(one), ())) for one in findings if id(one) in whole]
