from collections.abc import Iterator

from gonogo.hazards.checkpoint._lost_states import resumed_life_report
from gonogo.hazards.facts.left_out_of_checkpoint import SCHEDULER, fixes_for_state_left_out
from gonogo.hazards.rule import Finding, Findings, Fix, Hazard, RehearsalRecord, Run


class ResumeScheduleRestarted(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A learning-rate scheduler that resumes at another step than the one at which it was saved."""
        life = resumed_life_report(record)
        for counter in life.counters if life is not None else ():
            if counter.kind == "scheduler" and counter.status in ("restarted", "differs"):
                yield self.finding(
                    self.texts["cause"].format(
                        name=counter.name, saved=counter.saved or 0.0, now=counter.resumed or 0.0
                    ),
                    cure=self.page.cures,
                    ranks=tuple(rank.rank for rank in record.ranks),
                )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Remove the settings that leave the scheduler out of the checkpoint, or out of its loading."""
        yield from fixes_for_state_left_out(self, SCHEDULER, run)
