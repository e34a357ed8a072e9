"""Runs all hazards on a log: one finding per hazard, the root cause first."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding import Certainty, Finding, Severity, sorted_findings
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import hazard_of, hazards_possible_in_log
from gonogo.judge.cut_short import findings_by_similar_frames, findings_in_cut_log
from gonogo.judge.obligations import is_linked, limit_certainty_to_obligations

CONFIDENT_CERTAINTIES = (Certainty.CERTAIN, Certainty.LIKELY)


def findings_in_log(log: FailureLog) -> tuple[Finding, ...]:
    """The findings of all hazards in the logs, the root cause first, at most one per hazard."""
    hazards = {hazard.name: hazard for hazard in hazards_possible_in_log(log)}
    found = {
        name: merged
        for name, hazard in hazards.items()
        if not hazard.fallback and (merged := _most_certain_finding(hazard, log))
    }
    sure = {name for name, finding in found.items() if names_cause(finding)}
    roots = {name for name in sure if not hazards[name].consequence}
    for name, finding in list(found.items()):
        hazard = hazards[name]
        yields = any(other in sure and name not in hazards[other].yields_to for other in hazard.yields_to)
        if yields and not hazard.consequence:
            del found[name]
        elif hazard.consequence and (yields or roots) and finding.certainty in CONFIDENT_CERTAINTIES:
            found[name] = replace(finding, certainty=Certainty.POSSIBLE)
    rarity: dict[str, int] = {}
    if not any(names_cause(finding) for finding in found.values()):
        for hazard, finding in findings_in_cut_log(log):
            if finding.hazard not in found and limit_certainty_to_obligations(finding, hazard, log) is not None:
                hazards.setdefault(finding.hazard, hazard)
                found[finding.hazard], rarity[finding.hazard] = finding, len(rarity)
        for hazard, finding in findings_by_similar_frames(log) if not found else ():
            hazards.setdefault(finding.hazard, hazard)
            found[finding.hazard], rarity[finding.hazard] = finding, len(rarity)
        named = bool(found)
        for name, hazard in list(hazards.items()):
            if hazard.fallback and (merged := _most_certain_finding(hazard, log)):
                # What was raised is certain, but it explains less than a hazard that may be its cause.
                found[name] = replace(merged, certainty=Certainty.POSSIBLE) if named else merged
    place = {(line.path, line.number): index for index, line in reversed(list(enumerate(log.lines)))}

    def sort_key(finding: Finding) -> tuple[bool, bool, int, int]:
        hazard = hazards[finding.hazard]
        first = finding.spans[0] if finding.spans else None
        where = place.get((first.path, first.line), len(place)) if first else len(place)
        # If a line may mean several hazards, one that yields to another is less likely.
        rare = rarity.get(finding.hazard, sum(other in found for other in hazard.yields_to))
        return hazard.fallback, hazard.consequence, where, rare

    ordered = sorted_findings(sorted(found.values(), key=sort_key))
    # A confident finding that nothing is wrong is listed above an error that is merely possible.
    confident = [finding for finding in ordered if finding.certainty in CONFIDENT_CERTAINTIES]
    possible = [finding for finding in ordered if finding.certainty not in CONFIDENT_CERTAINTIES]
    # What was raised is told before causes that nothing in the exception or its code points to.
    possible.sort(key=lambda finding: 1 if is_raised_exception(finding) else _rank_of_possible(finding, hazards, log))
    return (*confident, *possible)


def _rank_of_possible(finding: Finding, hazards: Mapping[str, Hazard], log: FailureLog) -> int:
    hazard = hazards[finding.hazard]
    return 2 if hazard.fallback or not is_linked(finding, hazard, log) else 0


def is_raised_exception(finding: Finding) -> bool:
    """Whether the finding only tells the exception that was raised."""
    return finding.hazard == "program-raises"


def names_cause(finding: Finding) -> bool:
    """Whether the finding names a cause that is certain or likely."""
    return finding.certainty in CONFIDENT_CERTAINTIES and finding.severity is not Severity.NOTE


def is_fallback(finding: Finding) -> bool:
    """Whether the finding only repeats the exception and names no cause."""
    hazard = hazard_of(finding.hazard)
    return hazard is not None and hazard.fallback


def _most_certain_finding(hazard: Hazard, log: FailureLog) -> Finding | None:
    """The hazard's most certain finding, with the ranks of all its findings; None if it has none."""
    findings = sorted_findings(list(hazard.in_log(log)))
    if not findings:
        return None
    ranks = tuple(sorted({rank for finding in findings for rank in finding.ranks}))
    return limit_certainty_to_obligations(replace(findings[0], ranks=ranks), hazard, log)
