from gonogo.evidence.rehearsal.result_table import result_report
from gonogo.hazards.checkpoint._lost_states import listed, named
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Severity, translated


class ResultWeightsLost(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Trained weights that the converted, merged or loaded result lacks; weights of it that are in no file."""
        result = result_report(record)
        if result is None:
            return
        trained = [row for row in result.states if row.status != "drawn-anew"]
        lost = [row for row in trained if row.status in ("not-written", "not-read", "partly")]
        ranks = tuple(rank.rank for rank in record.ranks)
        drawn = [row for row in result.states if row.status == "drawn-anew"]
        if lost:
            yield self.finding(
                translated("Of {all} trained weights, the result lacks these: {rows}.").format(
                    all=len(trained), rows=listed(lost)
                ),
                severity=Severity.ERROR,
                ranks=ranks,
                certainty=Certainty.CERTAIN,
            )
        if drawn:
            yield self.finding(
                translated(
                    "Weights of the loaded model that are in no file and initialized anew: {names} ({count} in all)."
                ).format(count=len(drawn), names=named(drawn)),
                severity=Severity.ERROR,
                ranks=ranks,
                certainty=Certainty.LIKELY,
            )
