from gonogo.hazards.checkpoint._lost_states import ranks_of_rows, resumed_life_report, states_by_status_text
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
                cure=self.page.cures,
                ranks=ranks_of_rows(lost),
            )
            return
        for counter in life.counters:
            if counter.kind == "average" and counter.status in ("restarted", "differs"):
                yield self.finding(
                    self.texts["cause"].format(
                        name=counter.name, saved=counter.saved or 0.0, now=counter.resumed or 0.0
                    ),
                    severity=Severity.WARNING,
                    cure=self.page.cures,
                    ranks=tuple(rank.rank for rank in record.ranks),
                )
