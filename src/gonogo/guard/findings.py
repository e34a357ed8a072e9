"""Runs all hazards on a guarded run, and puts the rank that failed first and its cause before what followed."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from gonogo.check.static_findings import StaticFindings
from gonogo.evidence.guarded.as_rehearsal import to_rehearsal_record
from gonogo.evidence.guarded.ends import RankDeath, root_deaths, run_succeeded, to_failure_log
from gonogo.evidence.guarded.guarded_run import GuardedRun
from gonogo.evidence.rank_ends import rank_failures_in_record
from gonogo.evidence.rehearsal.failures import FailedRanks, failed_ranks, failure_places
from gonogo.finding import Certainty, Finding, Severity, Span, sorted_findings
from gonogo.hazards.index import all_hazards
from gonogo.judge.explained import FindingPlaces
from gonogo.judge.log_findings import findings_in_log
from gonogo.judge.merge import merge_findings
from gonogo.judge.rehearsal_findings import fallback_findings, findings_in_record


def findings_in_guarded_run(run: GuardedRun) -> tuple[Finding, ...]:
    """What all hazards find, the root cause first; at most one finding per hazard and place.

    A hazard checks the guard's own records, checks exceptions and diverging calls as in a rehearsal, and checks the
    recorded tracebacks as in a log. Fallback hazards count only for ranks that nothing else explains.
    """
    first = root_deaths(run)
    found: list[Finding] = []
    for hazard in all_hazards():
        if not hazard.fallback:
            found += hazard.in_guarded_run(run)
    found += _findings_in_exceptions(run)
    unexplained = _unexplained_ranks(first, found)
    for hazard in all_hazards():
        if hazard.fallback and (unexplained or not first):
            for finding in hazard.in_guarded_run(run):
                if not first or set(finding.ranks) & unexplained:
                    found.append(finding)
                    unexplained -= set(finding.ranks)
    return _sorted_findings([_downgrade_survived(run, finding) for finding in found], first)


def findings_with_files(
    run: GuardedRun, observed_findings: tuple[Finding, ...], files: StaticFindings
) -> tuple[Finding, ...]:
    """The findings of the run together with the errors that the files showed before the start.

    An error predicted from the files that the run did not show is no longer certain; if the run succeeded, it was
    none.
    """
    errors = [finding for finding in files.findings if finding.severity is Severity.ERROR]

    def downgrade_unseen(finding: Finding) -> Finding:
        surely = finding.certainty is Certainty.CERTAIN
        return _downgrade_survived(run, replace(finding, certainty=Certainty.LIKELY) if surely else finding)

    places = FindingPlaces(files.sources, files.base, files.packages)
    return merge_findings(
        observed_findings, errors, rank_failures_in_record(to_rehearsal_record(run)), places, unseen=downgrade_unseen
    )


def _findings_in_exceptions(run: GuardedRun) -> Iterator[Finding]:
    """What the hazards for rehearsals and logs find in the exceptions and in the place where the ranks diverge."""
    record = to_rehearsal_record(run)
    found, explained = findings_in_record(record)
    yield from found
    general = fallback_findings(record)
    failing = {rank for failed in failed_ranks(record) for rank in failed.ranks}
    yield from (one for one in general if not set(one.ranks) <= explained and not set(one.ranks) & failing)
    for failed in failed_ranks(record):
        if set(failed.ranks) <= explained:
            continue
        root_cause = _root_cause_in_traceback(run, failed)
        if root_cause is not None and root_cause.certainty is not Certainty.POSSIBLE:
            yield root_cause
            continue
        fallbacks = [finding for finding in general if set(finding.ranks) & set(failed.ranks)][:1]
        yield from fallbacks
        if root_cause is not None and all(one.hazard == "program-raises" for one in fallbacks):
            yield root_cause


def _root_cause_in_traceback(run: GuardedRun, failed_group: FailedRanks) -> Finding | None:
    """The root cause that hazards find in the ranks' tracebacks, with its places in the code."""
    ranks = [rank for number in failed_group.ranks if (rank := run.rank(number)) is not None]
    findings = findings_in_log(to_failure_log(run, ranks))
    fallbacks = {hazard.name for hazard in all_hazards() if hazard.fallback}
    chosen = next((one for one in findings if one.hazard not in fallbacks), None)
    if chosen is None:
        return None
    return replace(
        chosen,
        spans=failure_places(failed_group.failure) or chosen.spans,
        ranks=failed_group.ranks,
        module=chosen.module or failed_group.failure.module,
    )


def _unexplained_ranks(first_deaths: list[RankDeath], findings: list[Finding]) -> set[int]:
    explain = {hazard.name for hazard in all_hazards() if hazard.explains_failure or hazard.consequence}
    explained_ranks = {
        rank for one in findings if one.severity is Severity.ERROR and one.hazard in explain for rank in one.ranks
    }
    return {death.rank for death in first_deaths} - explained_ranks


def _downgrade_survived(run: GuardedRun, finding: Finding) -> Finding:
    """Turn an error into a warning if the run succeeded in spite of it."""
    if run_succeeded(run) and finding.severity is Severity.ERROR:
        return replace(finding, severity=Severity.WARNING)
    return finding


def _sorted_findings(findings: list[Finding], first_deaths: list[RankDeath]) -> tuple[Finding, ...]:
    """Errors first, led by the one that explains the first failed rank; later ranks' errors become possible only."""
    time = {death.rank: death.time for death in first_deaths}
    earliest = min(time.values(), default=0.0)
    root = {rank for rank, one in time.items() if one == earliest}

    def follows_root_failure(finding: Finding) -> bool:
        ranks = set(finding.ranks)
        return finding.severity is Severity.ERROR and bool(ranks) and bool(ranks & set(time)) and not ranks & root

    reported: list[Finding] = []
    for finding in findings:
        certainty = Certainty.POSSIBLE if follows_root_failure(finding) else finding.certainty
        reported.append(replace(finding, certainty=certainty))
    reported.sort(key=lambda finding: min((time.get(rank, earliest) for rank in finding.ranks), default=earliest))
    return sorted_findings(_deduplicate_findings(reported))


def _deduplicate_findings(findings: list[Finding]) -> list[Finding]:
    kept: dict[tuple[str, tuple[int, ...], Span | None], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.hazard, finding.ranks, finding.spans[0] if finding.spans else None), finding)
    return list(kept.values())
