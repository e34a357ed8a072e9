"""Combine a log with the files of its run: complete the setup, and merge the findings of both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gonogo.check.static_findings import StaticFindings
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.setup import Setup, parse_deepspeed_config
from gonogo.finding import Certainty, Finding, Severity, translated
from gonogo.finding.errors import UserError
from gonogo.judge.log_findings import is_fallback

if TYPE_CHECKING:  # imported only if files are given
    from gonogo.evidence.run import Run

_ONLY_IN_FILES = translated("The log does not show this problem: check whether the run got that far")


def require_folder(project: Path) -> None:
    """Raise UserError if the ``--project`` folder doesn't exist."""
    if not project.exists():
        raise UserError(translated("--project {path}: no such file or folder").format(path=project))


def complete_setup(known_setup: Setup, files: StaticFindings) -> Setup:
    """The setup, completed from the files of a single launch; values given by the user take precedence."""
    launched = [run for run in files.runs if run.launch is not None]
    if len(launched) != 1:
        return known_setup
    told = _setup_from_run(launched[0])
    unknown = {
        name: getattr(told, name)
        for name in ("deepspeed_config", "deepspeed_config_text", "launch", "script")
        if not getattr(known_setup, name)
    }
    return replace(known_setup, **unknown)


def _setup_from_run(run: Run) -> Setup:
    config = run.config.source.text if run.config is not None and run.config.source is not None else ""
    return Setup(
        deepspeed_config=parse_deepspeed_config(config),
        deepspeed_config_text=config,
        launch=run.launch.source.text if run.launch is not None else "",
        script=run.scripts[0].source.text if run.scripts else "",
    )


def add_file_findings(log: FailureLog, findings: tuple[Finding, ...], files: StaticFindings) -> tuple[Finding, ...]:
    """The findings in the log together with those in the run's files, the root cause first.

    Since the run failed, findings in the files alone may be the reason, but are not certain.
    """
    shown = _merge_file_findings(log, findings, files) if files.findings else findings
    confident = (Certainty.CERTAIN, Certainty.LIKELY)
    if any(_is_cause(finding) and finding.certainty in confident for finding in shown):
        # As with other findings in the log, the fallback that repeats the exception explains less.
        shown = tuple(
            replace(finding, certainty=Certainty.POSSIBLE) if is_fallback(finding) else finding for finding in shown
        )
    # As without files, possible findings come last.
    return tuple(sorted(shown, key=lambda finding: finding.certainty not in confident))


def _merge_file_findings(log: FailureLog, findings: tuple[Finding, ...], files: StaticFindings) -> tuple[Finding, ...]:
    from gonogo.evidence.rank_ends import rank_failures_in_log  # not needed if only a log is given
    from gonogo.judge.explained import FindingPlaces
    from gonogo.judge.merge import merge_findings

    places = FindingPlaces(files.sources, files.base, files.packages)
    return merge_findings(findings, files.findings, rank_failures_in_log(log), places, unseen=_downgrade_not_in_log)


def _is_cause(finding: Finding) -> bool:
    """Whether a finding in the files may be the failure's cause."""
    return finding.severity is Severity.ERROR and not is_fallback(finding)


def _downgrade_not_in_log(finding: Finding) -> Finding:
    """Downgrade a finding in the files alone: an error is at most likely to be the reason, anything else possible."""
    if finding.severity is not Severity.ERROR:
        return replace(finding, certainty=Certainty.POSSIBLE)
    if finding.certainty is not Certainty.CERTAIN:
        return finding
    return replace(finding, certainty=Certainty.LIKELY, confirm=(*finding.confirm, _ONLY_IN_FILES))
