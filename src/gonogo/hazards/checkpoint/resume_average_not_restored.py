from gonogo.hazards.checkpoint._lost_states import (
    counter_findings,
    ranks_of_rows,
    resumed_life_report,
    states_by_status_text,
)
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord, Severity, translated

_LOST_STATUSES = ("not-written", "not-read", "partly", "other-state")


class ResumeAverageNotRestored(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Averaged weights (EMA, SWA), or their update counters, that the resumed run did not restore."""
        life = resumed_life_report(record)
        if life is None:
            return
        averages = [row for row in life.states if row.kind == "average"]
        lost = [row for row in averages if row.status in _LOST_STATUSES]
        if lost:
            yield self.finding(
                translated("Of {all} averaged weights, these are lost on resume: {rows}.").format(
                    all=len(averages), rows=states_by_status_text(lost)
                ),
                ranks=ranks_of_rows(lost),
            )
            return
        yield from counter_findings(self, record, "average", self.texts["cause"], Severity.WARNING)
