from collections.abc import Iterator

from gonogo.hazards.checkpoint._lost_states import counter_findings
from gonogo.hazards.facts.left_out_of_checkpoint import SCHEDULER, fixes_for_state_left_out
from gonogo.hazards.rule import Finding, Findings, Fix, Hazard, RehearsalRecord, Run


class ResumeScheduleRestarted(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A learning-rate scheduler that resumes at another step than the one at which it was saved."""
        yield from counter_findings(self, record, "scheduler", self.texts["cause"])

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Remove the settings that leave the scheduler out of the checkpoint, or out of its loading."""
        yield from fixes_for_state_left_out(self, SCHEDULER, run)
