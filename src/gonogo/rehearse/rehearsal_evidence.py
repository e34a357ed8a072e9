"""Lowers the certainty of findings that only the files show, if the real program ran past them without failing."""

from __future__ import annotations

import os

from msgspec.structs import replace
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from gonogo.check.static_findings import StaticFindings
from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.rehearsal.conditions import conditions_around_stack
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Certainty, Finding, Severity, Span, translated
from gonogo.finding.frame import Frame
from gonogo.finding.ranks import ranks_text
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import all_hazards

_NOT_REPRODUCED = translated(
    "{cause} The rehearsal contradicts this: {ranks} ran past this point to the end without the error."
)

_REHEARSED_OTHER_VERSION = translated("{cause} This rehearsal used {name} {version}, which does not have the problem.")

_THIS_PYTHON = translated(
    "{cause} These are the versions in this Python; {ranks} ran to the end with them, with missing parts "
    "replaced by stand-ins. Whether the real run has the same versions is not known."
)


class RehearsalEvidence:
    """A rehearsal that completed on every requested rank."""

    def __init__(self, record: RehearsalRecord, files: StaticFindings) -> None:
        self._hazards = {hazard.name: hazard for hazard in all_hazards()}
        self._ranks = [rank.rank for rank in record.ranks]
        self._all = len(self._ranks) == record.world_size
        self._base = files.base
        versions = record.ranks[0].versions if record.ranks else {}
        self._other_versions = {
            name: version
            for name, version in versions.items()
            if not _satisfies_specifier(version, files.pinned.get(canonical_package_name(name)))
        }

    def downgrade(self, finding: Finding) -> Finding:
        """The finding with the certainty that remains after such a rehearsal.

        It is at most possible if it would have raised an exception there, and at most likely if it shows between
        ranks and all of them were run. A finding that no rehearsal can show is unchanged.
        """
        hazard = self._hazards.get(finding.hazard)
        if hazard is None or finding.severity is not Severity.ERROR:
            return finding
        if hazard.raises and not finding.spans and finding.certainty is not Certainty.POSSIBLE:
            cause = _THIS_PYTHON.format(cause=finding.cause, ranks=ranks_text(self._ranks))
            return replace(finding, certainty=Certainty.POSSIBLE, cause=cause)
        if self._other_versions:
            return self._downgrade_for_version(hazard, finding)
        shows = type(hazard).in_rehearsal is not Hazard.in_rehearsal and hazard.explains_failure
        if not (hazard.raises or (shows and self._all)) or not all(map(self._was_executed, finding.spans[:1])):
            return finding
        certainty = Certainty.POSSIBLE if hazard.raises else _cap_at_likely(finding.certainty)
        if certainty is finding.certainty:
            return finding
        return replace(
            finding,
            certainty=certainty,
            cause=_NOT_REPRODUCED.format(cause=finding.cause, ranks=ranks_text(self._ranks)),
        )

    def _downgrade_for_version(self, hazard: Hazard, finding: Finding) -> Finding:
        """Downgrade a finding about a version that a file pins but that was not rehearsed: the run may use either."""
        text = " ".join(span.text.lower() for span in finding.spans[:1])
        name = next((name for name in self._other_versions if name.lower() in text), None)
        if name is None or not (hazard.raises or type(hazard).in_rehearsal is not Hazard.in_rehearsal):
            return finding
        cause = _REHEARSED_OTHER_VERSION.format(cause=finding.cause, name=name, version=self._other_versions[name])
        return replace(finding, certainty=Certainty.POSSIBLE, cause=cause)

    def _was_executed(self, span: Span) -> bool:
        """Whether a program that ran to its end executed the place: only if it is under no condition."""
        if not span.path.endswith(".py"):
            return True
        frame = Frame(os.path.join(self._base, span.path), span.line, "", owner="user")
        return all(guard.kind == "for" or "__name__" in guard.text for guard in conditions_around_stack([frame]))


def _cap_at_likely(certainty: Certainty) -> Certainty:
    return Certainty.LIKELY if certainty is Certainty.CERTAIN else certainty


def _satisfies_specifier(version: str, specifier: str | None) -> bool:
    """Whether a rehearsed version is one that the files require; true if they require none."""
    if not specifier:
        return True
    try:
        return SpecifierSet(specifier).contains(Version(Version(version).public), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False
