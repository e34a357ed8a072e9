"""Merges several kinds of evidence of one run into one list of findings, by the same rules for all commands.

- The same hazard from files and from what was observed becomes one finding, with the places of both.
- If ranks ended at a place that a finding of the files names, that finding explains it: it gets the ranks and goes
  first.
- A general hazard yields to a more specific one, whichever evidence shows it; fallbacks are kept only if nothing
  explains the failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from gonogo.evidence.rank_ends import RankFailure
from gonogo.finding import Certainty, Finding, Fix, Severity, Span, Text, sorted_findings
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import all_hazards
from gonogo.judge.explained import FindingPlaces

_CERTAINTY_ORDER = {Certainty.CERTAIN: 2, Certainty.LIKELY: 1, Certainty.POSSIBLE: 0}


def merge_findings(
    seen: Sequence[Finding],
    files: Sequence[Finding],
    failures: Sequence[RankFailure],
    places: FindingPlaces,
    *,
    unseen: Callable[[Finding], Finding] = lambda finding: finding,
) -> tuple[Finding, ...]:
    """Merge observed findings (rehearsal, log, guarded run) with those in files, the root cause first.

    ``seen`` is sorted already, with paths as reports show them. ``unseen`` converts a finding that only the files
    show and that explains none of the failures.
    """
    if not files:
        return tuple(seen)
    hazards = {hazard.name: hazard for hazard in all_hazards()}
    explained: set[int] = set()  # indices of the file findings that made ranks fail
    unranked = False  # whether a certain one explains a failure whose ranks are unknown
    ranked = list(files)
    for number, finding in enumerate(files):
        for end in failures:
            how = places.explains(finding, hazards[finding.hazard], end)
            if how is not None:
                explained.add(number)
                ranked[number] = replace(
                    ranked[number],
                    ranks=tuple(sorted({*ranked[number].ranks, *end.ranks})),
                    certainty=_higher_certainty(ranked[number].certainty, how),
                    spans=_unique_places(ranked[number].spans, [end.place] if end.place else []),
                )
                unranked = unranked or (how is Certainty.CERTAIN and not end.ranks)
    merged, left = _merge_same_hazard(list(seen), ranked, hazards)
    explaining = [ranked[number] for number in explained if ranked[number] in left]
    others = [unseen(finding) for finding in left if finding not in explaining]
    of_both = [finding for finding in merged if finding not in seen]
    sure = [finding for finding in (*explaining, *of_both) if finding.certainty is Certainty.CERTAIN]

    def is_explained(finding: Finding) -> bool:
        ranks = {rank for one in sure for rank in one.ranks}
        return bool(sure) and (unranked or (bool(finding.ranks) and set(finding.ranks) <= ranks))

    def yields_to_any(finding: Finding, yielding_to: Iterable[Finding]) -> bool:
        names = hazards[finding.hazard].yields_to if finding.hazard in hazards else ()
        return any(
            one.hazard in names and one.certainty is not Certainty.POSSIBLE and _have_common_rank(one, finding)
            for one in yielding_to
        )

    kept = [
        finding
        for finding in merged
        if not (_is_fallback(finding, hazards) and is_explained(finding)) and not yields_to_any(finding, explaining)
    ]
    explaining = [finding for finding in explaining if not yields_to_any(finding, kept)]
    others = [finding for finding in others if not yields_to_any(finding, [*kept, *explaining])]
    # A likely explanation of an exception is listed above the bare fact that it was raised.
    first = [finding for finding in explaining if any(_is_fallback(one, hazards) for one in kept)]
    rest = [finding for finding in explaining if finding not in first]
    return (*sorted_findings(first), *sorted_findings([*rest, *kept, *others]))


def _higher_certainty(left: Certainty, other: Certainty) -> Certainty:
    return max(left, other, key=_CERTAINTY_ORDER.__getitem__)


def _is_fallback(finding: Finding, hazards: dict[str, Hazard]) -> bool:
    return finding.hazard in hazards and hazards[finding.hazard].fallback


def _have_common_rank(left: Finding, other: Finding) -> bool:
    return not left.ranks or not other.ranks or bool(set(left.ranks) & set(other.ranks))


def _merge_same_hazard(
    seen: list[Finding], files: list[Finding], hazards: dict[str, Hazard]
) -> tuple[list[Finding], list[Finding]]:
    """The observed findings, merged with file findings of the same hazard, and the file findings that are left."""
    left = list(files)
    merged = []
    for finding in seen:
        alike = [one for one in left if one.hazard == finding.hazard]
        if alike:
            same = next((one for one in alike if _have_common_place(one, finding)), sorted_findings(alike)[0])
            left.remove(same)
            finding = _merge_pair(finding, same, hazards[finding.hazard])
        merged.append(finding)
    return merged, left


def _have_common_place(left: Finding, other: Finding) -> bool:
    lines = {(span.path, line) for span in left.spans for line in range(span.line, max(span.end_line, span.line) + 1)}
    return any((span.path, span.line) in lines for span in other.spans)


def _merge_pair(observed_finding: Finding, static_finding: Finding, hazard: Hazard) -> Finding:
    """Merge two findings of one hazard: the observed one says what happened, the other one where, and how to fix it.

    If the observed one was only read from an exception as from a log, the texts of the file finding are used.
    """
    judged = (
        type(hazard).in_rehearsal is not Hazard.in_rehearsal or observed_finding.severity is not static_finding.severity
    )
    words = observed_finding if judged else static_finding
    gravest = min(
        (observed_finding, static_finding),
        key=lambda one: (one.severity is not Severity.ERROR, -_CERTAINTY_ORDER[one.certainty]),
    )
    places = (
        (observed_finding.spans, static_finding.spans) if judged else (static_finding.spans, observed_finding.spans)
    )
    return replace(
        words,
        certainty=gravest.certainty,
        severity=gravest.severity,
        ranks=observed_finding.ranks,
        module=observed_finding.module or static_finding.module,
        parameter=observed_finding.parameter or static_finding.parameter,
        spans=_unique_places(*places),
        cure=_unique_texts(static_finding.cure, observed_finding.cure),
        fixes=_distinct_fixes(static_finding, observed_finding),
    )


def _unique_places(*spans: Iterable[Span]) -> tuple[Span, ...]:
    kept: dict[tuple[str, int], Span] = {}
    for some in spans:
        for span in some:
            kept.setdefault((span.path, span.line), span)
    return tuple(kept.values())


def _unique_texts(*texts: Iterable[Text]) -> tuple[Text, ...]:
    return tuple(dict.fromkeys(text for some in texts for text in some))


def _distinct_fixes(*findings: Finding) -> tuple[Fix, ...]:
    return tuple(dict.fromkeys(fix for finding in findings for fix in finding.fixes))
