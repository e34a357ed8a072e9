"""What to try against a finding, the smallest change first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.finding import Applicability, Finding, Text
from gonogo.hazards.index import all_hazards
from gonogo.trials.cure.candidate import Candidate, of_fix
from gonogo.trials.cure.memory import memory_candidates
from gonogo.trials.cure.releases import guessed_releases, release_candidates
from gonogo.trials.cure.writing import set_zero

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.trials.cure.trial import Trial

_STAGE_2 = Text("ZeRO stage 2: parameters are not partitioned", "ZeRO stage 2：不切分参数")
_ORDER = {Applicability.SAFE: 0, Applicability.UNSAFE: 1}


def candidates(finding: Finding, trial: Trial, *, upstream: bool = False) -> Iterator[Candidate]:
    """The finding's own fixes, safe ones first, then what its hazard makes of the rehearsal; settings; releases.

    ``upstream``: first of all the releases in which what failed is otherwise.
    """
    if upstream:
        yield from guessed_releases(finding, trial)
    for fix in sorted((fix for fix in finding.fixes if fix.edits), key=lambda fix: _ORDER[fix.applicability]):
        yield of_fix(finding, fix)
    if trial.record is None or trial.run is None:
        return
    hazard = next(hazard for hazard in all_hazards() if hazard.name == finding.hazard)
    for fix in hazard.rehearsed_fixes(finding, trial.record, trial.run):
        if fix.edits:
            yield of_fix(finding, fix)
    yield from memory_candidates(finding, trial)
    yield from release_candidates(finding, trial)
    if hazard.theme == "zero3" or finding.hazard == "ranks-part-at-collective":
        yield from _lower_stage(finding, trial.run)


def _lower_stage(finding: Finding, run: Run) -> Iterator[Candidate]:
    """What fails under ZeRO-3 alone, since it partitions parameters, may run with stage 2 where that fits."""
    if run.zero_stage == 3 and (edits := set_zero(run, {"stage": 2})) is not None:
        yield Candidate(finding, _STAGE_2, tuple(edits), size=2)
