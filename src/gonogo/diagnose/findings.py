"""The report on logs: findings with the root cause first, the answer, clues and excerpts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gonogo.check.static_findings import NO_STATIC_FINDINGS, StaticFindings, check_project
from gonogo.diagnose.answer_sentence import failure_answer
from gonogo.diagnose.clues.join import MAX_CLUES, find_clues
from gonogo.diagnose.clues.setting_clues import forced_variable_clues
from gonogo.diagnose.clues.stack_clues import hung_in
from gonogo.diagnose.explanations.topics import FailingPart, describe_failing_part, failing_parts
from gonogo.diagnose.statements import is_fully_explained, most_informative_exception
from gonogo.evidence.failure.api_mismatch import find_api_mismatch
from gonogo.evidence.failure.failure_facts import failure_facts
from gonogo.evidence.failure.settings import settings_of
from gonogo.evidence.log.code_owner import code_place
from gonogo.evidence.log.failure_log import FailureLog, read_logs
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.source import find_log_sources
from gonogo.evidence.setup import Setup, parse_deepspeed_config, read_setup
from gonogo.finding import (
    Certainty,
    Finding,
    Report,
    Severity,
    Skipped,
    Text,
    UserError,
    Verdict,
    translated,
    verdict_of,
)
from gonogo.finding.failure import CodePlace, FailureFacts
from gonogo.finding.log_answer import Clue, CluePlace
from gonogo.finding.logs import Event, Excerpt, ExcerptLine, LogFile, Logs, RankEnd
from gonogo.hazards.index import all_hazards
from gonogo.judge.log_findings import CONFIDENT_CERTAINTIES, findings_in_log, is_fallback, names_cause

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
    setup = _setup_from_run(launched[0])
    unknown = {
        name: getattr(setup, name)
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


_MAX_MISSING = 3
_SIZE_ERROR_FORMS = ("not_divisible", "size_mismatch")


def missing_evidence(log: FailureLog, facts: FailureFacts) -> tuple[Skipped, ...]:
    """What to add to the logs for a more certain answer: at most three items, the most useful first."""
    return tuple(_iter_missing(log, facts))[:_MAX_MISSING]


def _iter_missing(log: FailureLog, facts: FailureFacts) -> Iterator[Skipped]:
    if not facts.chain and log.truncated_errors:
        yield Skipped(
            translated("the line that names the error"),
            translated(
                "the log ends in the middle of a traceback: paste the lines that follow it, including the whole "
                "exception message"
            ),
        )
    elif facts.chain and not any(raised.frames for raised in facts.chain):
        yield Skipped(
            translated("the traceback of {type}").format(type=facts.chain[-1].type),
            translated(
                "the log has only its last lines: paste everything from 'Traceback (most recent call last)' on, "
                "or run again with 2>&1 | tee run.log"
            ),
        )
    elif facts.collectives and not facts.chain:
        waiting = len({call.rank for call in facts.collectives})
        yield Skipped(
            translated("the other ranks' logs"),
            translated(
                "{count} rank(s) are shown waiting, but none is shown failing: give all logs (gonogo "
                "diagnose FOLDER), or py-spy dump --pid PID of each rank while they wait"
            ).format(count=waiting),
        )
    misfit = find_api_mismatch(facts, log.setup.version_texts)
    unknown = [name for name in (misfit.lacks, misfit.asks) if name] if misfit is not None else []
    unknown = [name for name in unknown if name not in log.setup.version_texts]
    if misfit is not None and (unknown or not log.setup.version_texts):
        yield Skipped(
            translated("the versions of {names}").format(names=", ".join(unknown) or "the packages"),
            translated(
                "the log does not show them: run pip freeze > versions.txt, and give --environment versions.txt"
            ),
        )
    sizes = any(raised.message.form in _SIZE_ERROR_FORMS or raised.type == "AssertionError" for raised in facts.chain)
    if (sizes or facts.collectives) and not settings_of(log):
        yield Skipped(
            translated("the launch command and the config"),
            translated("the diagnosis depends on the run's settings: give --launch FILE (the command, script or YAML)"),
        )


_BEFORE, _AFTER = 8, 8
"""Lines of context around the decisive line."""
_MAX_EXCERPTS = 3
_MAX_LINE_LENGTH = 400
_MAX_RANKS = 512
_FAILURE_ROLES = (Role.ROOT, Role.CASCADE)

if TYPE_CHECKING:  # imported only if a log needs it
    from gonogo.finding.log_answer import SimilarThread


class LoggedFailure(NamedTuple):
    """Logs that were read, and the run's files if these were read too."""

    log: FailureLog
    files: StaticFindings
    skipped: tuple[Skipped, ...]

    def report(self) -> Report:
        """The report on the logs."""
        return report_on_log(self.log, self.skipped, self.files)


def read_failure(
    logs: Sequence[str],
    *,
    deepspeed_config: Path | None = None,
    launch: Path | None = None,
    script: Path | None = None,
    environment: Path | None = None,
    command: Sequence[str] = (),
    project: Path | None = None,
    on_bytes: Callable[[int], None] = lambda count: None,
) -> LoggedFailure:
    """Read the logs of a failed run (paths, folders, ``-`` for stdin), and its files.

    ``command`` launched it, ``project`` is the folder of its files: they are read as by ``gonogo check``, but without
    this Python's packages. ``on_bytes`` is called with the number of bytes just read. Raises UserError for a file
    that doesn't exist or can't be read.
    """
    setup = read_setup(deepspeed_config, launch, script, environment)
    files = NO_STATIC_FINDINGS
    if project is not None:
        require_folder(project)
    if command or project is not None:
        paths = [str(project)] if project is not None else []
        files = check_project(command, paths, environment=environment, use_installed=False)
        setup = complete_setup(setup, files)
    opened, skipped = find_log_sources(list(logs))
    log = read_logs(opened, _hazard_log_words(), setup, on_bytes)
    return LoggedFailure(log, files, tuple(skipped))


def _hazard_log_words() -> Iterator[str]:
    """The log words of all hazards; consumed only for a long log."""
    for hazard in all_hazards():
        yield from hazard.log_words


def report_on_log(
    log: FailureLog, skipped: tuple[Skipped, ...] = (), files: StaticFindings = NO_STATIC_FINDINGS
) -> Report:
    """The report on logs, and on the run's files if these were read too."""
    facts_of_failure = failure_facts(log)
    clues = find_clues(log, facts_of_failure)
    logged = drop_contradicted(findings_in_log(log), clues)
    findings = add_file_findings(log, logged, files)
    if findings and findings[0].severity is Severity.ERROR:
        clues = (*clues, *forced_variable_clues(log, findings[0].cure))[:MAX_CLUES]
    parts = _failing_parts(log, facts_of_failure, findings)
    clues = (*clues, *_clues_of_parts(parts, log, facts_of_failure))[:MAX_CLUES]
    benign = bool(logged) and all(finding.severity is Severity.NOTE for finding in logged)
    complete = benign and not any(error.role is Role.ROOT for error in log.errors)
    for facts in log.logs:
        if facts.dropped_bytes:
            what = translated("{path}: {size} MiB of errors").format(
                path=facts.path, size=max(facts.dropped_bytes >> 20, 1)
            )
            why = translated("there are too many errors: only the first and the last were read")
            skipped = (*skipped, Skipped(what, why))
    if not complete and not any(finding.certainty is Certainty.CERTAIN for finding in findings):
        skipped = (*skipped, *missing_evidence(log, facts_of_failure))
    versions = log.setup.version_texts
    answer = (
        None
        if complete
        else failure_answer(facts_of_failure, clues, findings, versions, _truncated_traceback_frame(log), parts)
    )
    return Report(
        "diagnose",
        Verdict.NO_GO if answer is not None and answer.sure else verdict_of(findings, complete=complete),
        findings,
        covered=(*_covered_items(log), *files.covered),
        skipped=(*skipped, *files.skipped),
        log=_log_section(log, findings),
        notes=_notes(log, findings),
        similar=_find_similar_threads(log, findings, complete=complete),
        answer=answer,
        clues=clues,
        failure=facts_of_failure if facts_of_failure != FailureFacts() else None,
    )


def _failing_parts(log: FailureLog, facts: FailureFacts, findings: Sequence[Finding]) -> tuple[FailingPart, ...]:
    """The features that the failing code belongs to, unless a hazard explains the failure with confidence.

    Where rules explain it in full, only what frames, message and a setting show together is worth telling; or a setting
    that turns the failing code on, if no package is known to lack the attribute.
    """
    known = any(names_cause(finding) and not is_fallback(finding) for finding in findings)
    failed = most_informative_exception(facts.chain) if facts.chain else hung_in(log, facts)
    if known or failed is None:
        return ()
    parts = failing_parts(failed, settings_of(log))
    if facts.chain and is_fully_explained(facts, log.setup.version_texts):
        misfit = find_api_mismatch(facts, log.setup.version_texts)
        unknown = misfit is not None and misfit.form == "no_attribute" and not misfit.lacks
        parts = tuple(part for part in parts if part.topic.all or (unknown and part.setting is not None))
    return parts


def _clues_of_parts(parts: Sequence[FailingPart], log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    failed = facts.chain[-1] if facts.chain else hung_in(log, facts)
    if failed is None:
        return
    for part in parts:
        place = part.setting.place if part.setting is not None else None
        raised = CluePlace(failed.log, failed.line)
        yield Clue(describe_failing_part(part), (raised, *((place,) if place is not None else ())))


def _truncated_traceback_frame(log: FailureLog) -> CodePlace | None:
    """The innermost frame of the last traceback that was cut off before its exception."""
    frames = log.truncated_errors[-1].frames if log.truncated_errors else ()
    return code_place(frames[-1], log.setup.version_texts) if frames and frames[-1].code else None


def drop_contradicted(findings: tuple[Finding, ...], clues: Sequence[Clue]) -> tuple[Finding, ...]:
    """Drop findings that a clue contradicts; those that are only a consequence become possible, and come last."""
    against = {name for clue in clues for name in clue.against}
    secondary = {name for clue in clues for name in clue.secondary}
    kept = [finding for finding in findings if finding.hazard not in against]
    return (
        *(finding for finding in kept if finding.hazard not in secondary),
        *(replace(finding, certainty=Certainty.POSSIBLE) for finding in kept if finding.hazard in secondary),
    )


def _find_similar_threads(
    log: FailureLog, findings: tuple[Finding, ...], *, complete: bool
) -> tuple[SimilarThread, ...]:
    """Public threads about similar logs; none if the cause is certain or nothing failed."""
    causes = (finding for finding in findings if names_cause(finding) and not is_fallback(finding))
    if complete or any(finding.certainty is Certainty.CERTAIN for finding in causes):
        return ()
    from gonogo.judge.similar.find import similar_threads

    return similar_threads(log, {source for finding in findings for source in finding.sources})


def _covered_items(log: FailureLog) -> tuple[Text, ...]:
    lines = sum(facts.lines for facts in log.logs)
    size = sum(facts.bytes for facts in log.logs)
    covered = [
        translated("{logs} log(s), {lines} lines, {size}").format(
            logs=len(log.logs), lines=f"{lines:,}", size=_format_bytes(size)
        )
    ]
    setup = log.setup
    if setup.version_texts:
        listed = ", ".join(f"{name} {version}" for name, version in sorted(setup.version_texts.items())[:12])
        covered.append(translated("versions: {listed}").format(listed=listed))
    if setup.zero_stage is not None:
        covered.append(Text(f"ZeRO stage {setup.zero_stage}", f"ZeRO 阶段 {setup.zero_stage}"))
    return tuple(covered)


def _format_bytes(count: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def _notes(log: FailureLog, findings: tuple[Finding, ...]) -> tuple[Text, ...]:
    """Other errors seen, and what to do if nothing explains the log."""
    notes = []
    if not any(facts.bytes for facts in log.logs):
        notes.append(translated("The log is empty."))
    if not any(finding.certainty in CONFIDENT_CERTAINTIES for finding in findings):
        notes.append(
            translated(
                "No known issue explains this log for certain. Look at the earliest error of the rank that "
                "died first; with several ranks, give the logs of all of them: gonogo diagnose FOLDER."
            )
        )
    places = {(span.path, span.line) for finding in findings for span in finding.spans}
    others = [error for error in log.errors if (error.raised.at.path, error.raised.at.number) not in places]
    if findings and others:
        listed = "; ".join(_quote_line(error.raised.at.text, error.raised.at.number) for error in others[:3])
        rest = len(others) - 3
        more = Text(f" and {rest} more", f" 等另外 {rest} 个") if rest > 0 else ""
        notes.append(translated("Also seen: {listed}{more}").format(listed=listed, more=more))
    return tuple(notes)


def _quote_line(text: str, number: int) -> str:
    return f"{text.strip()[:100]} ({number})"


def _log_section(log: FailureLog, findings: tuple[Finding, ...]) -> Logs:
    return Logs(
        logs=tuple(LogFile(one.path, one.lines, one.bytes) for one in log.logs),
        events=tuple(
            Event(
                role=error.role.value,
                type=error.type,
                text=error.raised.at.text.strip()[:400],
                path=error.raised.at.path,
                line=error.raised.at.number,
                ranks=tuple(error.ranks),
                count=error.count,
                time=error.raised.at.time,
            )
            for error in log.errors[:100]
        ),
        versions=dict(log.setup.version_texts),
        excerpts=tuple(excerpts(log, findings)),
        ends=tuple(rank_failure_times(log)),
    )


def excerpts(log: FailureLog, findings: Sequence[Finding]) -> Iterator[Excerpt]:
    """The lines around the decisive line of each of the first findings."""
    lines = {(line.path, line.number): line for line in log.lines}
    decisive = {(span.path, span.line) for finding in findings for span in finding.spans}
    shown: set[tuple[str, int]] = set()
    for finding in findings[:_MAX_EXCERPTS]:
        place = next(((span.path, span.line) for span in finding.spans if (span.path, span.line) in lines), None)
        if place is None or place in shown:
            continue
        line = lines[place]
        around = [*log.lines_before(line, _BEFORE), line, *log.lines_after(line, _AFTER)]
        shown |= {(one.path, one.number) for one in around}
        yield Excerpt(
            line.path,
            tuple(
                ExcerptLine(
                    one.number, one.rank, one.text.rstrip()[:_MAX_LINE_LENGTH], (one.path, one.number) in decisive
                )
                for one in around
            ),
        )


def rank_failure_times(log: FailureLog) -> Iterator[RankEnd]:
    """The time at which each rank first reported a failure, in order; only ranks with timestamps."""
    first: dict[int, RankEnd] = {}
    for error in log.errors:
        if error.role not in _FAILURE_ROLES:
            continue
        for rank, time in error.times_by_rank:
            if rank not in first or time < first[rank].time:
                first[rank] = RankEnd(rank, time, error.role is Role.ROOT, error.type)
    yield from sorted(first.values(), key=lambda end: (end.time, end.rank))[:_MAX_RANKS]
