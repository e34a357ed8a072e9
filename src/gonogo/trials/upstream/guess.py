"""Chooses the release to try first, by comparing what the failing package's releases contain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import Version

from gonogo.evidence.failure.failure_facts import failure_facts
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.setup import Setup
from gonogo.trials.upstream.archives import Archives
from gonogo.trials.upstream.compare import ReportProgress, upstream_facts


@dataclass(frozen=True)
class ReleaseGuess:
    """A release that differs in what failed, and its neighbour that is like the failing one."""

    package: str
    other: Version
    same: Version


def guess_releases(
    traceback: str,
    versions: Mapping[str, str],
    archives: Archives | None = None,
    report_progress: ReportProgress = lambda text: None,
) -> list[ReleaseGuess]:
    """The releases that differ from the failing ones, most informative first. ``versions``: the run's."""
    lines = [LogLine("traceback", number, text) for number, text in enumerate(traceback.splitlines(), 1)]
    known: dict[str, str] = {canonicalize_name(name): version for name, version in versions.items()}
    chain = failure_facts(FailureLog(lines, Setup(version_texts=known))).chain
    return [
        ReleaseGuess(fact.package, Version(other), Version(same))
        for fact in upstream_facts(chain, known, archives, report_progress)
        for other, same in zip(fact.releases, fact.neighbours, strict=True)
    ]
