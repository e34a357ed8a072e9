"""Several kinds of evidence of one run as one list of findings: the rules, which are the same for all commands.

- The same hazard from files and from what was seen is one finding, with the places of both.
- What ended ranks at a place that a finding of the files names is explained by it: it has the ranks, and goes first.
- A general hazard yields to the one that knows more, whichever evidence shows it; fallbacks speak where nothing
  explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from gonogo.evidence.rank_ends import Ended
from gonogo.finding import Certainty, Finding, Fix, Severity, Span, Text, best_first
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import all_hazards
from gonogo.judge.explained import Places

_CERTAINTY_ORDER = {Certainty.CERTAIN: 2, Certainty.LIKELY: 1, Certainty.POSSIBLE: 0}


def merge_findings(
    seen: Sequence[Finding],
    files: Sequence[Finding],
    ends: Sequence[Ended],
    places: Places,
    *,
    unseen: Callable[[Finding], Finding] = lambda finding: finding,
) -> tuple[Finding, ...]:
    """What was seen (in a rehearsal, a log, a guarded run) and what the files show, the root cause first.

    ``seen`` is in its own order, best first, with the paths as reports show them. ``unseen`` says what becomes of a
    finding that only the files show, and that explains nothing of what was seen.
    """
    if not files:
        return tuple(seen)
    hazards = {hazard.name: hazard for hazard in all_hazards()}
    explained: set[int] = set()  # the findings of the files because of which ranks ended
    unranked = False  # whether one surely explains an end whose ranks are not told
    told = list(files)
    for number, finding in enumerate(files):
        for end in ends:
            how = places.explains(finding, hazards[finding.hazard], end)
            if how is not None:
                explained.add(number)
                told[number] = replace(
                    told[number],
                    ranks=tuple(sorted({*told[number].ranks, *end.ranks})),
                    certainty=_more_certain(told[number].certainty, how),
                    spans=_each_place_once(told[number].spans, [end.place] if end.place else []),
                )
                unranked = unranked or (how is Certainty.CERTAIN and not end.ranks)
    merged, left = _same_hazard_once(list(seen), told, hazards)
    explaining = [told[number] for number in explained if told[number] in left]
    others = [unseen(finding) for finding in left if finding not in explaining]
    of_both = [finding for finding in merged if finding not in seen]
    sure = [finding for finding in (*explaining, *of_both) if finding.certainty is Certainty.CERTAIN]

    def is_explained(finding: Finding) -> bool:
        ranks = {rank for one in sure for rank in one.ranks}
        return bool(sure) and (unranked or (bool(finding.ranks) and set(finding.ranks) <= ranks))

    def yields(finding: Finding, to: Iterable[Finding]) -> bool:
        names = hazards[finding.hazard].yields_to if finding.hazard in hazards else ()
        return any(
            one.hazard in names and one.certainty is not Certainty.POSSIBLE and _of_the_same_ranks(one, finding)
            for one in to
        )

    kept = [
        finding
        for finding in merged
        if not (_is_fallback(finding, hazards) and is_explained(finding)) and not yields(finding, explaining)
    ]
    explaining = [finding for finding in explaining if not yields(finding, kept)]
    others = [finding for finding in others if not yields(finding, [*kept, *explaining])]
    # What is likely to explain an exception stands above the bare fact that it was raised.
    first = [finding for finding in explaining if any(_is_fallback(one, hazards) for one in kept)]
    rest = [finding for finding in explaining if finding not in first]
    return (*best_first(first), *best_first([*rest, *kept, *others]))


def _more_certain(one: Certainty, other: Certainty) -> Certainty:
    return max(one, other, key=_CERTAINTY_ORDER.__getitem__)


def _is_fallback(finding: Finding, hazards: dict[str, Hazard]) -> bool:
    return finding.hazard in hazards and hazards[finding.hazard].fallback


def _of_the_same_ranks(one: Finding, other: Finding) -> bool:
    return not one.ranks or not other.ranks or bool(set(one.ranks) & set(other.ranks))


def _same_hazard_once(
    seen: list[Finding], files: list[Finding], hazards: dict[str, Hazard]
) -> tuple[list[Finding], list[Finding]]:
    """What was seen, each with what the files show of the same hazard; and the findings of the files that are left."""
    left = list(files)
    merged = []
    for finding in seen:
        alike = [one for one in left if one.hazard == finding.hazard]
        if alike:
            same = next((one for one in alike if _share_a_place(one, finding)), best_first(alike)[0])
            left.remove(same)
            finding = _as_one(finding, same, hazards[finding.hazard])
        merged.append(finding)
    return merged, left


def _share_a_place(one: Finding, other: Finding) -> bool:
    lines = {(span.path, line) for span in one.spans for line in range(span.line, max(span.end_line, span.line) + 1)}
    return any((span.path, span.line) in lines for span in other.spans)


def _as_one(seen: Finding, shown: Finding, hazard: Hazard) -> Finding:
    """One finding of two kinds of evidence. What was seen says how it went; the files say where it stands, and the fix.

    Of an exception that was only read as a log's, the files know more.
    """
    judged = type(hazard).in_rehearsal is not Hazard.in_rehearsal or seen.severity is not shown.severity
    words = seen if judged else shown
    gravest = min((seen, shown), key=lambda one: (one.severity is not Severity.ERROR, -_CERTAINTY_ORDER[one.certainty]))
    places = (seen.spans, shown.spans) if judged else (shown.spans, seen.spans)
    return replace(
        words,
        certainty=gravest.certainty,
        severity=gravest.severity,
        ranks=seen.ranks,
        module=seen.module or shown.module,
        parameter=seen.parameter or shown.parameter,
        spans=_each_place_once(*places),
        cure=_each_once(shown.cure, seen.cure),
        fixes=_fixes(shown, seen),
    )


def _each_place_once(*spans: Iterable[Span]) -> tuple[Span, ...]:
    kept: dict[tuple[str, int], Span] = {}
    for some in spans:
        for span in some:
            kept.setdefault((span.path, span.line), span)
    return tuple(kept.values())


def _each_once(*texts: Iterable[Text]) -> tuple[Text, ...]:
    return tuple(dict.fromkeys(text for some in texts for text in some))


def _fixes(*findings: Finding) -> tuple[Fix, ...]:
    return tuple(dict.fromkeys(fix for finding in findings for fix in finding.fixes))
