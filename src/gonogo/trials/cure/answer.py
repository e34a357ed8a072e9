"""Turns the result of a search into a report: the patch, manual steps, what was tried, what still blocks the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Edit, Finding, Report, Skipped, Text, Verdict, translated
from gonogo.finding.trials import cured
from gonogo.judge.rehearsal_summary import fullest_node_memory, memory_of_own_device
from gonogo.rehearse.lives import is_completed
from gonogo.rehearse.ranks.rank_options import LIFE_DEFAULT
from gonogo.trials.cure.candidate import Candidate
from gonogo.trials.cure.copy import WorkingCopy, make_patch
from gonogo.trials.cure.search import SearchState
from gonogo.trials.cure.trial import Trial
from gonogo.trials.plan.rehearsed_step import seconds_of_step

_INTERRUPTED_NOTE = translated("interrupted: partial result")
_OUT_OF_TIME = translated("--budget used up: there may be more to try")
_NOTHING_TO_DO = translated("the run is GO without changes: there is nothing to cure")
_CURED = translated("the patch cures the run: with it, the rehearsal is GO")
_NO_CURE = translated("no cure found: what was tried and the remaining blockers are below")
_NEAR_CURE = translated(
    "no complete cure found: the run gets further with the patch, and the remaining blockers are below"
)
_PARTLY = translated("everything after the errors below")
_ENDS_AT_FAILURE = translated("the rehearsal ends where the program fails")


def cure_report(
    state: SearchState, copy: WorkingCopy, *, rehearsal_count: int, seconds: float, patch_file: str | None
) -> Report:
    """GO if the run is GO as it is or with the cure, else CANNOT-TELL, because an untried cure may exist."""
    go = state.cured
    needed = bool(state.steps) or not go
    notes = [_INTERRUPTED_NOTE] if state.interrupted else [_OUT_OF_TIME] if state.out_of_time else []
    notes.append((_CURED if state.steps else _NOTHING_TO_DO) if go else _NEAR_CURE if state.steps else _NO_CURE)
    last = state.now.rehearsed
    record = state.now.record
    # State that a life loses, or memory that runs out, doesn't end a rehearsal: it says itself what it didn't cover.
    complete = last is not None and (go or (record is not None and is_completed(record)))
    return Report(
        command="cure",
        verdict=Verdict.GO if go else Verdict.CANNOT_TELL,
        findings=() if go else tuple(_with_user_paths(finding, copy) for finding in state.now.blocking_findings),
        covered=tuple(_with_user_paths_in_text(text, copy) for text in last.covered)
        if last is not None and complete
        else (),
        skipped=last.skipped if last is not None and complete else (Skipped(_PARTLY, _ENDS_AT_FAILURE),),
        cure=_make_cure(state, copy, needed, rehearsal_count, seconds, patch_file),
        notes=tuple(notes),
    )


def _make_cure(
    state: SearchState, copy: WorkingCopy, is_needed: bool, rehearsal_count: int, seconds: float, patch_file: str | None
) -> cured.Cure:
    command = copy.changed_command()
    return cured.Cure(
        needed=is_needed,
        proven=is_needed and state.cured,
        before=_trial_outcome(state.before),
        after=_trial_outcome(state.now) if state.steps else None,
        patch=copy.patch(),
        patch_file=patch_file,
        folder=str(copy.patch_folder()),
        pins=tuple(dict.fromkeys([*_pinned_releases(copy), *(pin for step in state.steps for pin in step.pins)])),
        variables=command[0] if command is not None else {},
        command=tuple(command[1]) if command is not None else None,
        steps=tuple(_steps_with_diffs(state.steps, copy)),
        tried=tuple(
            cured.RejectedChange(
                attempt.candidate.finding.hazard,
                attempt.candidate.title,
                _with_user_paths_in_text(attempt.outcome, copy),
            )
            for attempt in state.attempts
        ),
        alternatives=tuple(
            cured.Alternative(one.instead_of.title, one.candidate.title, one.patch, _trial_outcome(one.trial))
            for one in state.alternatives
        ),
        rehearsals=rehearsal_count,
        seconds=round(seconds, 1),
        interrupted=state.interrupted,
    )


def _steps_with_diffs(steps: Sequence[Candidate], copy: WorkingCopy) -> list[cured.CureStep]:
    """Each step with its diff against the result of the steps before it."""
    reported = []
    for number, step in enumerate(steps):
        copy.reset_and_apply([one.edits for one in steps[:number]])
        before = _read_edited_files(step.edits, copy)
        copy.reset_and_apply([one.edits for one in steps[: number + 1]])
        after = _read_edited_files(step.edits, copy)
        changed = {path: (before[path], after[path]) for path in before}
        reported.append(
            cured.CureStep(
                hazard=step.finding.hazard,
                title=step.title,
                why=_with_user_paths_in_text(step.finding.cause, copy),
                safe=step.safe,
                files=tuple(sorted({copy.original_path_text(edit.path) for edit in step.edits})),
                diff=make_patch(changed, copy.patch_folder()),
                pins=step.pins,
            )
        )
    return reported


def _read_edited_files(edits: Sequence[Edit], copy: WorkingCopy) -> dict[Path, bytes]:
    places = {copy.original_path(edit.path) for edit in edits}
    return {place: copy.path_in_copy(place).read_bytes() for place in places if place is not None}


def _pinned_releases(copy: WorkingCopy) -> list[str]:
    """The releases that a changed requirements file now pins; they have to be installed."""
    from gonogo.evidence.files import FileKind, kind_of

    pins = []
    for path, (before, after) in copy.changed_files().items():
        if kind_of(path) is FileKind.ENVIRONMENT and path.suffix == ".txt":
            old = set(before.decode("utf-8", "replace").splitlines())
            new = after.decode("utf-8", "replace").splitlines()
            pins += [line.split("#")[0].strip() for line in new if line not in old and line.strip()]
    return pins


def _trial_outcome(trial: Trial) -> cured.TrialOutcome:
    record = trial.record
    own = memory_of_own_device(record.ranks[0]) if record is not None and record.ranks else None
    node = fullest_node_memory(record) if record is not None else None
    return cured.TrialOutcome(
        verdict=trial.verdict.value,
        hazards=tuple(dict.fromkeys(finding.hazard for finding in trial.blocking_findings)),
        ranks=_ranks_text(trial),
        peak_reserved_bytes=own.peak_reserved_bytes if own is not None and _has_optimizer_step(record) else None,
        capacity_bytes=own.total_bytes - own.allowance_bytes if own is not None else None,
        allowance_bytes=own.allowance_bytes if own is not None else 0,
        host_peak_bytes=node.peak_bytes if node is not None and _has_optimizer_step(record) else None,
        seconds_of_step=seconds_of_step(record) if record is not None else None,
    )


def _ranks_text(trial: Trial) -> str:
    """The value of ``--ranks``; with ``--life``, which chooses ranks itself, those that were run."""
    if trial.ranks != LIFE_DEFAULT or trial.record is None:
        return trial.ranks
    return ",".join(str(rank.rank) for rank in trial.record.ranks)


def _has_optimizer_step(record: RehearsalRecord | None) -> bool:
    """Whether the first rank made an optimizer step: a peak before it is not representative."""
    return record is not None and bool(record.ranks) and record.ranks[0].steps > 0


def _with_user_paths(finding: Finding, copy: WorkingCopy) -> Finding:
    """A finding with the user's own paths; its fixes are left out, because their edits are for the copy."""
    spans = tuple(replace(span, path=copy.original_path_text(span.path)) for span in finding.spans)
    return replace(finding, spans=spans, cause=_with_user_paths_in_text(finding.cause, copy), fixes=())


def _with_user_paths_in_text(text: Text, copy: WorkingCopy) -> Text:
    return Text(copy.with_original_paths(text.en), copy.with_original_paths(text.zh))


def with_step_time(report: Report, record: RehearsalRecord) -> Report:
    """The report of a rehearsal with the estimated time per step, if work was counted."""
    seconds = seconds_of_step(record)
    if report.rehearsal is None or not seconds:
        return report
    run = record.ranks[0].as_run
    tokens = None
    if run is not None and run.tokens and run.samples:
        tokens = run.tokens[1] * run.samples[1] * (run.accumulation[1] if run.accumulation else 1) / seconds
        tokens /= run.tensor_ranks * record.ranks[0].pipeline[0]  # they all work on the same samples
    rehearsal = replace(report.rehearsal, seconds_of_step=seconds, tokens_per_second_per_gpu=tokens)
    return replace(report, rehearsal=rehearsal)
