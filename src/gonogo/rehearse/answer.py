"""Turns the record of a rehearsal into a report: the hazards' findings, the verdict, and what was covered or not."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gonogo.check.static_findings import NO_STATIC_FINDINGS, StaticFindings, check_project
from gonogo.evidence.rank_ends import rank_failures_in_record
from gonogo.evidence.rehearsal.lives import RESULT_STAGES
from gonogo.evidence.rehearsal.record import Phase, RankRecord, RehearsalRecord
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Report, Severity, Skipped, Text, Verdict, translated, verdict_of
from gonogo.finding.ranks import ranks_text
from gonogo.finding.remedy import GapRemedy, Purpose, Reason, prepare_launch, rehearse_again
from gonogo.finding.words import PHASE_NAMES
from gonogo.judge.explained import FindingPlaces
from gonogo.judge.merge import merge_findings
from gonogo.judge.rehearsal_findings import findings_in_rehearsal
from gonogo.judge.rehearsal_summary import rehearsal_summary, relative_path, with_relative_paths
from gonogo.prepare.packages.names import STACK
from gonogo.rehearse import run
from gonogo.rehearse.life_answer import is_life_complete, life_coverage, skipped_life_checks, unknown_life_checks
from gonogo.rehearse.limits.certificate import certificate_line
from gonogo.rehearse.progress import OnProgress
from gonogo.rehearse.rehearsal_evidence import RehearsalEvidence
from gonogo.rehearse.request import RehearsalRequest, in_prepared_environment

_MAX_PACKAGES = 3

_REASONS_BY_OUTCOME = {
    "raised": translated("the program raised an exception before reaching it"),
    "out-of-memory": translated("the program ran out of memory before reaching it"),
    "diverged": translated("the ranks had diverged before reaching it"),
    "stuck": translated("all its threads waited before reaching it, and nobody went on"),
    "unsupported": translated("stopped earlier, at something that can't be rehearsed"),
    "timed-out": translated("timed out before reaching it (raise --timeout SECONDS)"),
    "killed": translated("the worker was killed before reaching it"),
    "interrupted": translated("the rehearsal was interrupted before reaching it"),
    "completed": translated("the program ended without reaching it"),
}
_TOO_FEW_ROWS = Reason(
    translated(
        "not enough training data for one batch: there are fewer rows than all ranks need for a batch; add more, or "
        "run gonogo prepare --rows N"
    ),
    prepare_launch("--rows", "1024", purpose=Purpose.GENERATE_ROWS),
)

_SIGNAL_OF_OOM_KILLER = "SIGKILL"
_MIN_EXTENSION_SECONDS = 3600
"""Seconds: what ``--timeout`` is raised to at least."""
_OOM_KILLER_HINT = translated(
    "usually the system's OOM killer: rehearse fewer ranks (--ranks 0), or use a machine with more memory"
)
_KEEP = translated(
    "--keep DIR keeps its full output in DIR/rank-{rank}/output.log; a library ended the process here, for a "
    "reason that may not apply to the real run"
)
_OUTCOME_TEXTS = {
    "raised": translated("raised an exception"),
    "unsupported": translated("stopped at something that can't be rehearsed"),
    "killed": translated("was killed"),
    "stuck": translated("waits forever"),
}


def rehearse_and_report(
    request: RehearsalRequest, on_progress: OnProgress | None = None
) -> tuple[RehearsalRecord, Report]:
    """Rehearse a command and read its files: the record, and the report on both. Raises what ``rehearse`` raises."""
    found: list[StaticFindings] = []
    request = in_prepared_environment(request, Path.cwd())

    def check_files(file_overrides: Mapping[str, str], use_installed: bool = True) -> None:
        found.append(
            check_project(
                request.command,
                environment=request.environment,
                use_installed=use_installed,
                file_overrides=file_overrides,
            )
        )

    reading = threading.Thread(target=check_files, args=({},), daemon=True)  # concurrently with the ranks
    reading.start()
    record = run.rehearse(request, on_progress)
    reading.join()
    # For packages that were replaced only for the rehearsal, the files' requirements still count; local version
    # labels (torch's +cpu) are specific to this machine.
    laid_over = {
        name: version.partition("+")[0] for name, version in record.laid_over.items() if name not in record.differing
    }
    if laid_over:
        check_files(laid_over, not record.whole_environment)
    files = found[-1] if found else NO_STATIC_FINDINGS
    if request.environment is None:
        record.notes += [(note.en, note.zh) for note in pinned_version_notes(record, files.runs)]
    return record, rehearsal_report(record, files=files)


def rehearsal_report(
    record: RehearsalRecord, folder: str | None = None, *, files: StaticFindings = NO_STATIC_FINDINGS
) -> Report:
    """The report of a rehearsal; paths are relative to ``folder`` (default: the current one) if they are below it.

    ``files`` is what the run's files show: parts of them that weren't read are reported but don't change the verdict.

    NO-GO if a hazard is certain of an error. CANNOT-TELL if a requested rank did not complete, a phase that a real
    run would reach was not reached, something could not be rehearsed, or a rank failed in a way that no hazard
    explains. Otherwise GO.
    """
    folder = os.getcwd() if folder is None else folder
    found = findings_in_rehearsal(record)
    seen = [with_relative_paths(folder, _downgrade_oom_with_inferred_batches(finding, record)) for finding in found]
    places = FindingPlaces(files.sources, files.base, files.packages)
    unseen = RehearsalEvidence(record, files).downgrade if _is_complete(record) else _keep_unchanged
    for other in filter(None, (record.first_life, record.second_life, *record.afterwards)):
        known = {(finding.hazard, finding.spans) for finding in seen}
        earlier = [with_relative_paths(folder, finding) for finding in findings_in_rehearsal(other)]
        seen += [finding for finding in earlier if (finding.hazard, finding.spans) not in known]
    findings = merge_findings(seen, files.findings, rank_failures_in_record(record), places, unseen=unseen)
    verdict = verdict_of(findings, complete=_is_complete(record))
    return Report(
        command="rehearse",
        verdict=verdict,
        findings=findings,
        covered=(*life_coverage(record), *_covered_items(record, folder), *files.covered),
        skipped=(*_collect_skipped(record, findings, folder), *files.skipped),
        rehearsal=rehearsal_summary(record, folder),
        notes=(*_certificate_lines(record, findings, verdict), *(Text(*note) for note in record.notes)),
    )


def _collect_skipped(record: RehearsalRecord, findings: Sequence[Finding], folder: str) -> Iterator[Skipped]:
    """What was skipped; if a later stage failed, the reason precedes what was not reached because of it."""
    explained = {rank for one in findings if one.severity is Severity.ERROR for rank in one.ranks}
    items = [*_skipped_items(record, explained, folder)]
    of_life = [*skipped_life_checks(record), *unknown_life_checks(record)]
    yield from (*items, *of_life) if record.life_part in RESULT_STAGES else (*of_life, *items)


def _certificate_lines(record: RehearsalRecord, findings: Sequence[Finding], verdict: Verdict) -> Iterator[Text]:
    """A line that says why the failure behind a NO-GO can't be due to this machine."""
    certain = {
        rank
        for finding in findings
        if finding.severity is Severity.ERROR and finding.certainty is Certainty.CERTAIN
        for rank in finding.ranks
    }
    lines = (certificate_line(rank.certificate) for rank in record.ranks if rank.rank in certain)
    if verdict is Verdict.NO_GO and (line := next((one for one in lines if one is not None), None)) is not None:
        yield line


_OF_STATES_ALONE = frozenset({"gpu-oom-model-states"})
"""Shortages that no data has a part in."""


def _downgrade_oom_with_inferred_batches(finding: Finding, record: RehearsalRecord) -> Finding:
    """The finding; no longer certain if memory ran out with batches whose shape was inferred."""
    short = any(rank.rank in finding.ranks and rank.outcome == "out-of-memory" for rank in record.ranks)
    if not record.inferred or not short or finding.severity is not Severity.ERROR or finding.hazard in _OF_STATES_ALONE:
        return finding
    confirm = _PUT_REAL_FILES.format(paths=", ".join(record.inferred))
    return replace(finding, certainty=Certainty.LIKELY, confirm=(*finding.confirm, confirm))


def _keep_unchanged(finding: Finding) -> Finding:
    return finding


def rehearse_uninterrupted(request: RehearsalRequest, on_progress: OnProgress | None) -> tuple[RehearsalRecord, Report]:
    """As :func:`rehearse_and_report`; raises KeyboardInterrupt if Ctrl-C ended the rehearsal."""
    record, report = rehearse_and_report(request, on_progress)
    if was_interrupted(record):
        raise KeyboardInterrupt
    return record, report


def was_interrupted(record: RehearsalRecord) -> bool:
    """Whether Ctrl-C ended the rehearsal."""
    return any(rank.outcome == "interrupted" for rank in record.ranks)


def _missing_phases(rank: RankRecord) -> list[Phase]:
    reached = {*rank.phases}
    if "backward" in reached:
        reached.add("forward")  # a loss of bare parameters has no module whose forward would be noticed
    return [phase for phase in rank.expected_phases if phase not in reached]


def _is_complete(record: RehearsalRecord) -> bool:
    return (
        bool(record.ranks)
        and all(
            rank.outcome == "completed" and not _missing_phases(rank) and not rank.unsupported for rank in record.ranks
        )
        and is_life_complete(record)
    )


def _reached_exit(rank: RankRecord) -> bool:
    """Whether the program ran to its end; after running out of virtual memory a rehearsal goes on."""
    return rank.outcome == "completed" or (rank.outcome == "out-of-memory" and "exit" in rank.phases)


def _describe_blocking_rank(other: int, end_state: str) -> Text:
    return translated("it waited for rank {other}, which {how} before reaching it").format(
        other=other, how=_OUTCOME_TEXTS.get(end_state, translated("ended"))
    )


def _user_line(rank: RankRecord, folder: str) -> list[str]:
    """The user's line where a program was when it was ended from outside; empty if unknown."""
    frame = next((frame for frame in reversed(rank.stack) if frame.owner == "user"), None)
    return [f"{relative_path(folder, frame.path)}:{frame.line}"] if frame else []


def _describe_activity(last_activity: str, place: list[str]) -> Text:
    """``forward, step 1, train.py:20``: a rank's last activity from its record, in both languages."""
    phase, _, rest = last_activity.partition(", step ")
    step, *doing = rest.split(", ", 1)
    name = PHASE_NAMES.get(phase)
    if name is None or not step.isdecimal():
        return Text(", ".join([last_activity, *place]), "，".join([last_activity, *place]))
    rest_of_it = [*(words for words in doing if words), *place]
    return Text(", ".join([name.en, f"step {step}", *rest_of_it]), "，".join([name.zh, f"第 {step} 步", *rest_of_it]))


def _phase_names(phases: list[Phase]) -> Text:
    """The phases' names in the order of a run, whatever the order in which the program reached them."""
    names = [name for phase, name in PHASE_NAMES.items() if phase in phases]
    return Text(", ".join(name.en for name in names), "、".join(name.zh for name in names))


def _covered_items(record: RehearsalRecord, folder: str) -> Iterator[Text]:
    """What each rank went through, equal ranks on one line, and whether the ranks were compared."""
    alike: dict[Text, list[int]] = {}
    for rank in record.ranks:
        if rank.phases:
            alike.setdefault(_describe_coverage(rank), []).append(rank.rank)
    for went, ranks in alike.items():
        yield translated("{ranks}: {went}").format(ranks=ranks_text(ranks), went=went)
    for one in dict.fromkeys(led for rank in record.ranks for led in rank.advanced_loops):
        yield translated("{place}: `{test}`, with {counter} set from {before:,} to {value:,}").format(
            place=_relative_place(one.place, folder),
            test=one.text,
            counter=one.counter,
            before=one.before,
            value=one.value,
        )
    for rank in record.ranks:
        if rank.workers:
            yield translated("Ray: {workers}").format(workers=", ".join(rank.workers))
    if len(record.ranks) > 1 and _were_ranks_compared(record):
        calls = max(sum(total.count for total in rank.collectives) for rank in record.ranks)
        yield translated("{ranks} compared with each other at each of {calls:,} collective calls").format(
            ranks=ranks_text(rank.rank for rank in record.ranks), calls=calls
        )


def _relative_place(place: str, folder: str) -> str:
    path, _, line = place.rpartition(":")
    return f"{relative_path(folder, path)}:{line}"


def _were_ranks_compared(record: RehearsalRecord) -> bool:
    return record.divergence is not None or all(rank.outcome == "completed" for rank in record.ranks)


def _describe_coverage(rank: RankRecord) -> Text:
    phases = _phase_names(rank.phases)
    if not _reached_exit(rank):
        phases = translated("{phases} (not completed)").format(phases=phases)
    return translated("{phases}; {steps} optimizer steps, {operators:,} operators").format(
        phases=phases, steps=rank.steps, operators=rank.operators
    )


def _most_tokens(rank: RankRecord) -> int:
    """The largest number of tokens in a sample; 0 if none was seen."""
    tokens = rank.as_run.sample_tokens if rank.as_run is not None else None
    return tokens[1] if tokens is not None else 0


_SHAPE_INFERRED = translated(
    "gonogo generated it with the shape that the rehearsed code reads: put a few real files there to test with "
    "their shapes"
)
_PUT_REAL_FILES = translated("put a few of the run's own files at {paths}, and rehearse again")
_SHAPE_OPEN = translated(
    "gonogo generated it with the shape that the rehearsed code reads, but had to guess at least one size, on "
    "which memory use depends: put a few real files there to test with their shapes"
)
_STARTED_BY_PROGRAM = translated(
    "the program starts them itself: use a launcher (torchrun --nproc_per_node …) to rehearse each"
)


def _skipped_items(record: RehearsalRecord, explained_ranks: set[int], folder: str) -> Iterator[Skipped]:
    alike: dict[Skipped, list[int]] = {}
    for rank in record.ranks:
        for one in _skipped_on_rank(rank, record, explained_ranks, folder):
            alike.setdefault(one, []).append(rank.rank)
    for one, ranks in alike.items():  # what several ranks lack is reported once
        yield replace(one, what=translated("{ranks}: {what}").format(ranks=ranks_text(ranks), what=one.what))
    for cut in dict.fromkeys(cut for rank in record.ranks for cut in rank.left_out):
        path, colon, rest = cut.what.partition(":")
        shown = f"{relative_path(folder, path)}{colon}{rest}" if os.path.isabs(path) else cut.what
        yield Skipped(Text(shown, cut.what_zh.replace(path, relative_path(folder, path), 1)), Text(cut.why, cut.why_zh))
    run = {rank.rank for rank in record.ranks}
    if others := [rank for rank in range(record.world_size) if rank not in run]:
        yield Skipped(
            translated("{count} of {world} ranks").format(count=len(others), world=record.world_size),
            translated("not rehearsed (use --ranks all)") if record.launched is None else _STARTED_BY_PROGRAM,
            beyond_request=True,
        )
    if any(rank.workers for rank in record.ranks):
        yield Skipped(
            translated("whether Ray's workers call the same collectives"),
            translated("each worker was rehearsed separately"),
            beyond_request=True,
        )
    if record.world_size > 1 and len(record.ranks) == 1:
        yield Skipped(
            translated("whether the ranks call the same collectives"),
            translated(
                "only one rank was rehearsed, so there is nothing to compare: use --ranks all or --ranks "
                "sample to find hangs"
            )
            if record.launched is None
            else _STARTED_BY_PROGRAM,
            beyond_request=True,
        )
    if tokens := max((_most_tokens(rank) for rank in record.ranks), default=0):
        yield Skipped(
            translated("samples of more than {tokens:,} tokens").format(tokens=tokens),
            translated(
                "not tested; activations grow with length, so make sure that the longest samples are among "
                "the rehearsed ones"
            ),
            beyond_request=True,
        )
    for path, shape in record.inferred.items():
        what = translated("{path}: data of another shape than {shape}").format(
            path=relative_path(folder, path), shape=shape.replace("?", "")
        )
        yield Skipped(what, _SHAPE_OPEN if "?" in shape else _SHAPE_INFERRED)
    chinese = record.skipped_zh or record.skipped
    for (what_en, why_en), (what_zh, why_zh) in zip(record.skipped, chinese, strict=True):
        yield Skipped(Text(what_en, what_zh), Text(why_en, why_zh))


def _skipped_on_rank(
    rank: RankRecord, record: RehearsalRecord, explained_ranks: set[int], folder: str
) -> Iterator[Skipped]:
    """What a rank did not reach, why, and how to get it further."""
    for unsupported in rank.unsupported:
        what = f"{unsupported.what} ({relative_path(folder, unsupported.where)})"
        why = Text(unsupported.why, unsupported.why_zh or unsupported.why)
        yield Skipped(Text(what, what), why, unsupported.remedy)
    missing: Text | None = _phase_names(_missing_phases(rank)) if _missing_phases(rank) else None
    if missing is None and not _reached_exit(rank):  # it ended before its settings could be read
        last = _phase_names(rank.phases[-1:]) if rank.phases else translated("startup")
        missing = translated("everything after {last}").format(last=last)
    if missing is not None:
        why = (
            _REASONS_BY_OUTCOME[rank.outcome] if rank.stopped_by is None else _describe_blocking_rank(*rank.stopped_by)
        )
        remedy = _remedy_by_outcome(rank, record)
        if rank.outcome == "completed" and rank.empty_pass and not rank.steps:
            why, remedy = _TOO_FEW_ROWS.why, _TOO_FEW_ROWS.remedy
        if rank.last_activity and rank.outcome != "completed":
            why = translated("{why}; last activity: {activity}").format(
                why=why, activity=_describe_activity(rank.last_activity, _user_line(rank, folder))
            )
        yield Skipped(missing, why, remedy)
    if rank.outcome == "killed" and rank.events:  # how the worker ended, and its last output
        last_words = "; ".join([rank.events[0], *rank.events[1:][-3:]])
        todo = _OOM_KILLER_HINT if _SIGNAL_OF_OOM_KILLER in rank.events[0] else _KEEP
        why = translated("{words}; {todo}").format(words=last_words, todo=todo.format(rank=rank.rank))
        yield Skipped(translated("this rank's record"), why)
    if rank.failure and rank.rank not in explained_ranks and not rank.unsupported:
        frame = rank.failure.innermost("user") or rank.failure.innermost("library")
        why = translated("it ended with {type} at {place}, which matches no known hazard: {message}").format(
            type=rank.failure.type,
            place=f"{relative_path(folder, frame.path)}:{frame.line}" if frame else "?",
            message=rank.failure.message,
        )
        yield Skipped(translated("a verdict on this rank"), why)


def _remedy_by_outcome(rank: RankRecord, record: RehearsalRecord) -> GapRemedy | None:
    """What would let a rank get further, if how it ended tells; an exception or a gap of its own has its own remedy."""
    if rank.outcome == "timed-out":
        seconds = max(
            _MIN_EXTENSION_SECONDS, math.ceil(2 * record.seconds / _MIN_EXTENSION_SECONDS) * _MIN_EXTENSION_SECONDS
        )
        return rehearse_again("--timeout", str(seconds), purpose=Purpose.EXTEND_TIMEOUT)
    if rank.outcome == "interrupted":
        return rehearse_again()
    if rank.outcome == "killed" and rank.events and _SIGNAL_OF_OOM_KILLER in rank.events[0] and len(record.ranks) > 1:
        return rehearse_again("--ranks", "0", purpose=Purpose.ONE_RANK)
    return None


def pinned_version_notes(record: RehearsalRecord, runs: Sequence[Run]) -> Iterator[Text]:
    """A note for each file that pins stack packages differently from what the ranks had, and what to do about it."""
    versions = record.ranks[0].versions if record.ranks else {}
    found: dict[str, list[tuple[str, str]]] = {}
    for one in runs:
        for package in one.environment.packages.values():
            have = versions.get(package.name)
            if package.name not in (*STACK, "torch") or package.place is None or have is None:
                continue
            pair = (f"{package.name}{package.specifier}", have)
            if not _specifier_contains(package.specifier, have) and pair not in found.setdefault(
                package.place.source.path, []
            ):
                found[package.place.source.path].append(pair)
    for file, pairs in found.items():
        wanted = ", ".join(pair for pair, _ in pairs[:_MAX_PACKAGES]) + (", …" if len(pairs) > _MAX_PACKAGES else "")
        had = ", ".join(have for _, have in pairs[:_MAX_PACKAGES])
        if pairs:
            yield translated(
                "{file} requires {wanted}, but the rehearsal used {had}: use --environment {file} to "
                "rehearse with the required version"
            ).format(file=file, wanted=wanted, had=had)


def _specifier_contains(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(version.partition("+")[0], prereleases=True)
    except InvalidSpecifier:
        return True
