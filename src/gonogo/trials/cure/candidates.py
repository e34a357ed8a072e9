"""What to try against a finding, the smallest change first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.finding import Applicability, Finding
from gonogo.hazards.hazard import all_hazards
from gonogo.trials.cure.candidate import Candidate, of_fix

if TYPE_CHECKING:
    from gonogo.trials.cure.trial import Trial

_ORDER = {Applicability.SAFE: 0, Applicability.UNSAFE: 1}


def candidates(finding: Finding, trial: Trial) -> Iterator[Candidate]:
    """The finding's own fixes, safe ones first, then those that its hazard makes from the rehearsal."""
    for fix in sorted((fix for fix in finding.fixes if fix.edits), key=lambda fix: _ORDER[fix.applicability]):
        yield of_fix(finding, fix)
    if trial.record is None or trial.run is None:
        return
    hazard = next(hazard for hazard in all_hazards() if hazard.name == finding.hazard)
    for fix in hazard.rehearsed_fixes(finding, trial.record, trial.run):
        if fix.edits:
            yield of_fix(finding, fix)
