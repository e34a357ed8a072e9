"""Runs all hazards on a rehearsal's record: on the record itself, and on its exceptions as on a log."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from msgspec.structs import replace

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.rehearsal.failures import (
    FailedRanks,
    assumption_behind_failure,
    data_end_behind_failure,
    failed_ranks,
    failure_places,
    is_memory_shortage,
)
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.evidence.setup import Setup
from gonogo.finding import Certainty, Finding, Severity, sorted_findings
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import all_hazards
from gonogo.judge.log_findings import findings_in_log


def findings_in_rehearsal(record: RehearsalRecord) -> tuple[Finding, ...]:
    """The findings of all hazards, best first.

    Exceptions that no hazard explains from the record go through the hazards' ``in_log``, as if they were in a log;
    fallbacks are used only for ranks that nothing else certainly explains.
    """
    findings, explained = findings_in_record(record)
    for failed in failed_ranks(record):
        if not set(failed.ranks) <= explained and not is_memory_shortage(failed.first, failed.failure):
            for finding in findings_from_traceback(record, failed):
                findings.append(finding)
                if finding.certainty is Certainty.CERTAIN:
                    explained |= set(failed.ranks)
    for finding in fallback_findings(record):
        if not set(finding.ranks) <= explained:
            findings.append(finding)
            explained |= set(finding.ranks)
    return sorted_findings(findings)


def findings_in_record(record: RehearsalRecord) -> tuple[list[Finding], set[int]]:
    """The findings of all hazards except fallbacks in the record, and the ranks whose failure they explain.

    If two concern the same ranks, the one that yields to the other is dropped.
    """
    hazards = {hazard.name: hazard for hazard in all_hazards() if not hazard.fallback}
    found = [finding for hazard in hazards.values() for finding in hazard.in_rehearsal(record)]

    def yields_to_another(finding: Finding) -> bool:
        others = hazards[finding.hazard].yields_to
        return any(other.hazard in others and set(other.ranks) & set(finding.ranks) for other in found)

    kept = [finding for finding in found if not yields_to_another(finding)]
    explaining = [f for f in kept if f.severity is Severity.ERROR and hazards[f.hazard].explains_failure]
    return kept, {rank for finding in explaining for rank in finding.ranks}


def fallback_findings(record: RehearsalRecord) -> list[Finding]:
    """The findings of the fallbacks, whatever else was found."""
    return [finding for hazard in all_hazards() if hazard.fallback for finding in hazard.in_rehearsal(record)]


def findings_from_traceback(record: RehearsalRecord, failed_group: FailedRanks) -> Iterator[Finding]:
    """The root cause that the hazards find in the exception's traceback, with its places in the code."""
    failure, first = failed_group.failure, failed_group.first
    text = failure.traceback or f"{failure.type}: {failure.message}"
    if failure.type == "SystemExit" and failure.message not in text:  # argparse printed the message itself
        text = f"{failure.message}\n{text}"
    setup = Setup(
        version_texts=first.versions, deepspeed_config=first.deepspeed_config, launch=shlex.join(record.command)
    )
    log = FailureLog([LogLine("", number, line) for number, line in enumerate(text.splitlines(), 1)], setup)
    # Hazards with in_rehearsal have already decided, on more than the exception's message.
    judged = {hazard.name for hazard in all_hazards() if type(hazard).in_rehearsal is not Hazard.in_rehearsal}
    for finding in findings_in_log(log)[:1]:
        if (
            finding.certainty is Certainty.POSSIBLE
            or finding.severity is not Severity.ERROR
            or finding.hazard in judged
        ):
            continue
        # It may have failed because of a branch on a value that a rehearsal can't know.
        assumed = assumption_behind_failure(first, failure)
        hazard = next(one for one in all_hazards() if one.name == finding.hazard)
        if assumed is not None and assumed.kind == "generated" and hazard.needs is not None:
            assumed = assumed if "made" in hazard.needs else None
        surely = assumed is None and data_end_behind_failure(first, failure) is None
        surely = surely and failure.type != "ModuleNotFoundError"  # it may be installed on the machine that trains
        yield replace(
            finding,
            certainty=finding.certainty if surely else Certainty.LIKELY,
            spans=failure_places(failure),
            ranks=failed_group.ranks,
            module=finding.module or failure.module,
        )
