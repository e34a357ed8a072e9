from collections.abc import Iterator

from gonogo.hazards.checkpoint._lost_states import (
    counter_findings,
    ranks_of_rows,
    resumed_life_report,
    states_by_status_text,
)
from gonogo.hazards.facts.left_out_of_checkpoint import OPTIMIZER, fixes_for_state_left_out
from gonogo.hazards.rule import Finding, Findings, Fix, Hazard, RehearsalRecord, Run, translated

_LOST_STATUSES = ("not-written", "not-read", "partly", "other-state", "other-dtype")


class ResumeOptimizerNotRestored(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Optimizer tensors, or the optimizer's step count, that the second run did not restore."""
        life = resumed_life_report(record)
        if life is None:
            return
        states = [row for row in life.states if row.kind == "optimizer"]
        lost = [row for row in states if row.status in _LOST_STATUSES]
        if lost:
            yield self.finding(
                translated("Of {all} tensors of the optimizer's state, these are lost on resume: {rows}.").format(
                    all=len(states), rows=states_by_status_text(lost)
                ),
                ranks=ranks_of_rows(lost),
            )
            return
        yield from counter_findings(self, record, "optimizer", self.texts["cause"])

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Remove the settings that leave the optimizer out of the checkpoint, or out of its loading."""
        yield from fixes_for_state_left_out(self, OPTIMIZER, run)
