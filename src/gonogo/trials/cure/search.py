"""The search for a cure: one change at a time, kept if it brings the run further, until it is GO."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gonogo.evidence.rehearsal.record import RankRecord, RehearsalRecord
from gonogo.finding import Applicability, Certainty, Edit, Finding, Text, UserError, Verdict, translated
from gonogo.hazards.index import all_hazards
from gonogo.trials.cure.candidate import Candidate, candidate_from_fix
from gonogo.trials.cure.invariants import explain_changed_training
from gonogo.trials.cure.memory import memory_candidates
from gonogo.trials.cure.releases import RELEASE, guessed_releases, release_candidates
from gonogo.trials.cure.request import CureRequest
from gonogo.trials.cure.setting_edits import set_zero
from gonogo.trials.cure.trial import Trial, TrialRunner

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.trials.cure.trial import Trial
_STAGE_2 = translated("ZeRO stage 2: parameters are not partitioned")
_APPLICABILITY_ORDER = {Applicability.SAFE: 0, Applicability.UNSAFE: 1}

_MAX_STEPS = 12
_UNCHANGED_LABEL = translated("unchanged")
_FINAL_VERIFICATION = translated("final verification")


@dataclass(frozen=True)
class Attempt:
    """A candidate that was tried without success, and the outcome."""

    candidate: Candidate
    outcome: Text


@dataclass(frozen=True)
class EqualAlternative:
    """A candidate of equal size that makes the run GO as well, with its trial and its complete patch."""

    instead_of: Candidate
    candidate: Candidate
    trial: Trial
    patch: str


@dataclass
class SearchState:
    """What has been found so far. ``now`` is the trial of the copy with ``steps``."""

    before: Trial
    now: Trial
    steps: list[Candidate] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    alternatives: list[EqualAlternative] = field(default_factory=list)
    interrupted: bool = False
    out_of_time: bool = False

    @property
    def cured(self) -> bool:
        """Whether the copy is GO in its current state."""
        return self.now.verdict is Verdict.GO


class CureSearch:
    """One search; :meth:`run` is called once."""

    def __init__(self, request: CureRequest, trial_runner: TrialRunner) -> None:
        self._request = request
        self._trier = trial_runner
        self._copy = trial_runner.copy
        self._ends = time.monotonic() + request.budget
        self._tried: set[tuple[object, ...]] = set()
        self._ranks = request.rehearsal.ranks

    def run(self) -> SearchState:
        """Search until it is GO; Ctrl-C or the end of the budget ends it with what is known by then."""
        self._trier.doing = _UNCHANGED_LABEL
        before = self._rehearse_unchanged(self._copy_launch_files(self._first_check()))
        found = SearchState(before, before)
        try:
            before = found.before = found.now = self._rehearse_rank_sample(before, _UNCHANGED_LABEL)
            while not found.cured and len(found.steps) < _MAX_STEPS and self._apply_next_candidate(found):
                pass
            if found.cured:
                self._remove_unneeded_steps(found)
        except KeyboardInterrupt:
            found.interrupted = True
        found.out_of_time = not found.cured and self._is_budget_used_up
        self._apply_steps(found.steps)
        return found

    def rehearse_baseline(self) -> SearchState:
        """Rehearse the unchanged run, as the baseline for a change to be judged."""
        self._trier.doing = _UNCHANGED_LABEL
        trial = self._rehearse_unchanged(self._copy_launch_files(self._first_check()))
        trial = self._rehearse_rank_sample(trial, _UNCHANGED_LABEL)
        return SearchState(trial, trial)

    def judge_candidate(self, before: SearchState, candidate: Candidate) -> Trial | Text:
        """The trial with a change if it brings the run further, else the reason why not."""
        return self._try_candidate(before, candidate)

    def _rehearse_unchanged(self, checked: Trial) -> Trial:
        """Rehearse the run; if that is impossible, and the files alone show an error to cure, only check it."""
        try:
            return self._trier(checked, self._ranks)
        except UserError:
            if not _has_certain_error(checked.file_errors):
                raise
            return checked

    def _first_check(self) -> Trial:
        """Check the files; if the command can't be edited where it stands, write it to a script in the copy."""
        trial = self._trier.check()
        if any(not run.launch.source.writable for run in trial.checked.gathered.runs if run.launch is not None):
            self._copy.write_command_script()
            trial = self._trier.check()
        return trial

    def _copy_launch_files(self, trial: Trial) -> Trial:
        """Copy all files that the launch reads, so that a program can't get out of the copy through a symlink."""
        for path in trial.checked.gathered.files.sources:
            original = self._copy.original_path(path)
            if original is not None:
                self._copy.replace_symlink(original)
        return trial

    @property
    def _is_budget_used_up(self) -> bool:
        return time.monotonic() >= self._ends

    def _rehearse_rank_sample(self, trial: Trial, progress_text: Text) -> Trial:
        """If all ranks completed and the user chose none, rehearse a sample of all ranks as well."""
        if not self._request.own_ranks or trial.ranks == "sample" or trial.record is None:
            return trial
        if trial.record.world_size == 1 or not _all_ranks_completed(trial):
            return trial
        self._ranks = "sample"
        self._trier.doing = progress_text
        return self._trier(trial, self._ranks)

    def _apply_next_candidate(self, state: SearchState) -> bool:
        """Try candidates until one is kept; False if none is left, or the time is up."""
        for finding in state.now.blocking_findings:
            with self._copy.as_working_directory():
                to_try = list(candidates(finding, state.now, upstream=self._request.upstream))
            for number, candidate in enumerate(to_try):
                key = (candidate.key, tuple(step.key for step in state.steps))
                if key in self._tried or not self._copy.contains_edited_files(candidate.edits):
                    continue
                if self._is_budget_used_up:
                    return False
                self._tried.add(key)
                outcome = self._try_candidate(state, candidate)
                if isinstance(outcome, Trial):
                    if outcome.verdict is Verdict.GO:
                        self._find_alternative(state, candidate, to_try[number + 1 :])
                    state.steps.append(candidate)
                    state.now = outcome
                    return True
                state.attempts.append(Attempt(candidate, outcome))
                self._apply_steps(state.steps)
        return False

    def _find_alternative(self, state: SearchState, accepted_candidate: Candidate, remaining: list[Candidate]) -> None:
        """Rehearse one more candidate of the same size and another kind, as an alternative for the user."""
        equal = next(
            (one for one in remaining if one.size == accepted_candidate.size and one.kind != accepted_candidate.kind),
            None,
        )
        if equal is None or self._is_budget_used_up or not self._copy.contains_edited_files(equal.edits):
            return
        outcome = self._try_candidate(state, equal)
        if isinstance(outcome, Trial) and outcome.verdict is Verdict.GO:
            state.alternatives.append(EqualAlternative(accepted_candidate, equal, outcome, self._copy.patch()))

    def _try_candidate(self, state: SearchState, candidate: Candidate) -> Trial | Text:
        """The trial with a candidate if it brings the run further, else why it is not accepted."""
        self._apply_steps([*state.steps, candidate])
        trial = self._copy_launch_files(self._trier.check())
        worse = _new_certain_errors(state.now.file_errors, trial.file_errors)
        if worse:
            return _CAUSES_OTHER_ERROR.format(what=worse[0].title)
        if (
            not self._request.allow_training_changes
            and (why := explain_changed_training(state.before, trial)) is not None
        ):
            return _CHANGES_TRAINING.format(what=why)
        if self._has_certain_file_error(state, trial):
            # The files alone still say NO-GO, so there is no need to rehearse until they are in order.
            if not _is_absent(candidate.finding, trial.file_errors):
                return _ERROR_REMAINS
            if not _is_absent(candidate.finding, state.now.file_errors):
                return trial
        self._trier.doing = candidate.title
        try:
            trial = self._trier(trial, self._ranks)
        except UserError as error:
            return error.text
        if (
            not self._request.allow_training_changes
            and (why := explain_changed_training(state.before, trial)) is not None
        ):
            return _CHANGES_TRAINING.format(what=why)
        if trial.verdict is Verdict.GO:
            return self._rehearse_rank_sample(trial, _FINAL_VERIFICATION)
        goes_on = is_progress(state.now, trial, candidate.finding, passes=candidate.kind == RELEASE)
        return trial if goes_on else _failed_trial_text(candidate.finding, trial)

    def _has_certain_file_error(self, state: SearchState, trial: Trial) -> bool:
        """Whether the files show a certain error, other than one that a rehearsal has disproved."""
        seen = state.now if state.now.rehearsed is not None else state.before
        there = {finding.hazard for finding in seen.blocking_findings}
        refuted = {finding.hazard for finding in seen.file_errors if finding.hazard not in there}
        return _has_certain_error(finding for finding in trial.file_errors if finding.hazard not in refuted)

    def _remove_unneeded_steps(self, state: SearchState) -> None:
        """Remove each step without which the run is GO as well, beginning with the last."""
        for step in reversed(state.steps[:]):
            fewer = steps_without(state.steps, step)
            if fewer is None or not fewer or self._is_budget_used_up:
                continue
            self._apply_steps(fewer)
            trial = self._trier.check()
            if any(_is_absent(finding, state.now.file_errors) for finding in trial.file_errors):
                continue
            self._trier.doing = translated("without this change: {title}").format(title=step.title)
            trial = self._trier(trial, state.now.ranks)
            if trial.verdict is Verdict.GO:
                state.attempts.append(Attempt(step, _NOT_NEEDED))
                state.steps, state.now = fewer, trial

    def _apply_steps(self, steps: Iterable[Candidate]) -> None:
        steps = list(steps)
        self._copy.reset_and_apply([step.edits for step in steps])
        self._trier.pins = tuple(pin for step in steps for pin in step.pins)


_CAUSES_OTHER_ERROR = translated("the change causes another error: {what}")
_CHANGES_TRAINING = translated("the change affects training results (--allow-training-changes permits it): {what}")
_ERROR_REMAINS = translated("the error remains")
_NOT_NEEDED = translated("reverted, because the run is GO without it")


def _has_certain_error(findings: Iterable[Finding]) -> bool:
    return any(finding.certainty is Certainty.CERTAIN for finding in findings)


def _all_ranks_completed(trial: Trial) -> bool:
    """Whether all rehearsed ranks completed, regardless of the files."""
    return trial.record is not None and all(rank.outcome == "completed" for rank in trial.record.ranks)


def _finding_key(finding: Finding) -> tuple[object, ...]:
    first = finding.spans[0] if finding.spans else None
    return (finding.hazard, first.path, first.text) if first else (finding.hazard,)


def _is_absent(finding: Finding, findings: Iterable[Finding]) -> bool:
    return _finding_key(finding) not in {_finding_key(one) for one in findings}


def _new_certain_errors(before: Iterable[Finding], after: Iterable[Finding]) -> list[Finding]:
    """Certain errors of hazards that were not found before."""
    known = {finding.hazard for finding in before}
    return [f for f in after if f.hazard not in known and f.certainty is Certainty.CERTAIN]


def is_progress(before: Trial, after: Trial, target_finding: Finding, *, passes: bool = False) -> bool:
    """Whether a finding is gone, and the run ends no earlier than before.

    ``passes``: the statement at which it ended has to be passed as well. A change of code may leave the same
    statement with another error; another release has the same error at other line numbers.
    """
    if before.record is None:
        return _is_absent(target_finding, after.blocking_findings)
    if after.reached < before.reached or (passes and _stops_at_same_statement(before.record, after)):
        return False
    if _is_absent(target_finding, after.blocking_findings):
        return (
            target_finding.hazard not in {finding.hazard for finding in after.blocking_findings}
            or after.reached > before.reached
        )
    return False


def _stops_at_same_statement(before: RehearsalRecord, after: Trial) -> bool:
    """Whether a rank still ends at the same user statement, which means that it has not been passed.

    Another release fails at other line numbers, with other messages, or in a way that can't be rehearsed.
    """
    ended = {_failing_statement(rank) for rank in before.ranks} - {None}
    return after.record is not None and any(_failing_statement(rank) in ended for rank in after.record.ranks)


def _failing_statement(rank: RankRecord) -> tuple[str, str, str] | None:
    """The innermost statement in the user's code at which a rank raised; None if there is none."""
    frame = rank.failure.innermost("user") if rank.failure is not None else None
    return (frame.path, frame.function, frame.text) if frame is not None else None


def _failed_trial_text(target_finding: Finding, trial: Trial) -> Text:
    """The outcome of a trial that brought no progress."""
    first = next(iter(trial.blocking_findings), None)
    if first is None:
        why = next(iter(trial.rehearsed.skipped), None) if trial.rehearsed is not None else None
        if why is None:
            return translated("CANNOT-TELL")
        return translated("CANNOT-TELL: {what}: {why}").format(what=why.what, why=why.why)
    if first.hazard == target_finding.hazard:
        return _ERROR_REMAINS
    fallback = first.hazard in {hazard.name for hazard in all_hazards() if hazard.fallback}
    return translated("with the change, the run fails for another reason: {what}").format(
        what=first.cause if fallback else first.title
    )


def candidates(finding: Finding, trial: Trial, *, upstream: bool = False) -> Iterator[Candidate]:
    """The finding's own fixes, safe ones first, then those its hazard derives from the rehearsal; settings; releases.

    ``upstream``: begin with the releases that differ in what failed.
    """
    if upstream:
        yield from guessed_releases(finding, trial)
    for fix in sorted(
        (fix for fix in finding.fixes if fix.edits), key=lambda fix: _APPLICABILITY_ORDER[fix.applicability]
    ):
        yield candidate_from_fix(finding, fix)
    if trial.record is None or trial.run is None:
        return
    hazard = next(hazard for hazard in all_hazards() if hazard.name == finding.hazard)
    for fix in hazard.rehearsed_fixes(finding, trial.record, trial.run):
        if fix.edits:
            yield candidate_from_fix(finding, fix)
    yield from memory_candidates(finding, trial)
    yield from release_candidates(finding, trial)
    if hazard.theme == "zero3" or finding.hazard == "ranks-part-at-collective":
        yield from _zero_stage_2_candidates(finding, trial.run)


def _zero_stage_2_candidates(finding: Finding, run: Run) -> Iterator[Candidate]:
    """Try stage 2, if it fits, for what fails only under ZeRO-3, because parameters are partitioned."""
    if run.zero_stage == 3 and (edits := set_zero(run, {"stage": 2})) is not None:
        yield Candidate(finding, _STAGE_2, tuple(edits), size=2)


def steps_without(steps: Sequence[Candidate], removed_step: Candidate) -> list[Candidate] | None:
    """The other steps, as if ``removed_step`` had never been made; None if a later step changes what it wrote."""
    at = next(number for number, step in enumerate(steps) if step is removed_step)
    moved = list(steps[:at])
    gone = list(removed_step.edits)
    for step in steps[at + 1 :]:
        edits = [_relocate_edit(edit, gone) for edit in step.edits]
        if any(edit is None for edit in edits):
            return None
        moved.append(replace(step, edits=tuple(edit for edit in edits if edit is not None)))
        # Shift the removed edits by this step's edits, to compare them with the steps after it.
        gone = [_shift_edit(one, step.edits) for one in gone]
    return moved


def _relocate_edit(edit: Edit, earlier_edits: Sequence[Edit]) -> Edit | None:
    """Move an edit to where it would be without the earlier edits of the same file; None if they overlap."""
    shift = 0
    for one in sorted((one for one in earlier_edits if one.path == edit.path), key=lambda one: one.start):
        start = one.start + _added_characters(
            [other for other in earlier_edits if other.path == one.path and other.start < one.start]
        )
        end = start + len(one.after)
        if edit.start >= end:
            shift -= len(one.after) - len(one.before)
        elif edit.end > start:
            return None
    return replace(edit, start=edit.start + shift, end=edit.end + shift)


def _shift_edit(removed_edit: Edit, later_edits: Sequence[Edit]) -> Edit:
    shift = _added_characters(
        [edit for edit in later_edits if edit.path == removed_edit.path and edit.end <= removed_edit.start]
    )
    return replace(removed_edit, start=removed_edit.start + shift, end=removed_edit.end + shift)


def _added_characters(edits: Sequence[Edit]) -> int:
    return sum(len(edit.after) - len(edit.before) for edit in edits)
