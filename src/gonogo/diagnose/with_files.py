"""A log and the files of the run that wrote it: what they tell of its setup, and one list of findings from both."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from gonogo.check.static_findings import StaticFindings
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.run import Run
from gonogo.evidence.setup import Setup, parse_deepspeed_config
from gonogo.finding import Certainty, Finding, Severity, translated
from gonogo.finding.errors import UserError
from gonogo.judge.log_findings import is_fallback

_ONLY_IN_FILES = translated("The log does not show it: check whether the run got that far")
_NO_SUCH = translated("--project {path}: no such file or folder")


def require_folder(project: Path) -> None:
    """Raises UserError for a ``--project`` that is not there."""
    if not project.exists():
        raise UserError(translated("--project {path}: no such file or folder").format(path=project))


def complete_setup(known_setup: Setup, files: StaticFindings) -> Setup:
    """The setup with what the files of one launch tell; what was given stands."""
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


def with_files(log: FailureLog, findings: tuple[Finding, ...], files: StaticFindings) -> tuple[Finding, ...]:
    """What the log shows together with what the files show, the root cause first.

    The log is of a run that has died: what only the files show is what may have ended it, and not certain to have.
    """
    shown = _merge_file_findings(log, findings, files) if files.findings else findings
    confident = (Certainty.CERTAIN, Certainty.LIKELY)
    if any(_is_cause(finding) and finding.certainty in confident for finding in shown):
        # As beside another hazard of the log: what was raised is certain, and explains less.
        shown = tuple(
            replace(finding, certainty=Certainty.POSSIBLE) if is_fallback(finding) else finding for finding in shown
        )
    # As without files: what is merely possible stands last.
    return tuple(sorted(shown, key=lambda finding: finding.certainty not in confident))


def _merge_file_findings(log: FailureLog, findings: tuple[Finding, ...], files: StaticFindings) -> tuple[Finding, ...]:
    from gonogo.evidence.rank_ends import rank_failures_in_log  # a log alone starts without them
    from gonogo.judge.explained import FindingPlaces
    from gonogo.judge.merge import merge_findings

    places = FindingPlaces(files.sources, files.base, files.packages)
    return merge_findings(findings, files.findings, rank_failures_in_log(log), places, unseen=_downgrade_not_in_log)


def _is_cause(finding: Finding) -> bool:
    return finding.severity is Severity.ERROR and not is_fallback(finding)


def _downgrade_not_in_log(finding: Finding) -> Finding:
    """What only the files show: an error is likely at most to be why the run died, and the rest is a remark."""
    if finding.severity is not Severity.ERROR:
        return replace(finding, certainty=Certainty.POSSIBLE)
    if finding.certainty is not Certainty.CERTAIN:
        return finding
    return replace(finding, certainty=Certainty.LIKELY, confirm=(*finding.confirm, _ONLY_IN_FILES))
