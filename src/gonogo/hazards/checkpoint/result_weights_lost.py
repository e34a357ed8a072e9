from collections.abc import Iterator

from gonogo.evidence.rehearsal.result_table import result_report
from gonogo.hazards.checkpoint._lost_states import state_names_text, states_by_status_text
from gonogo.hazards.facts.left_out_of_checkpoint import gather_on_save_fixes, modules_to_save_fixes
from gonogo.hazards.rule import Certainty, Finding, Findings, Fix, Hazard, RehearsalRecord, Run, translated


class ResultWeightsLost(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Trained weights missing in the converted, merged or loaded result; weights of it that no file has."""
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
                    all=len(trained), rows=states_by_status_text(lost)
                ),
                ranks=ranks,
            )
        if drawn:
            yield self.finding(
                self.texts["cause"].format(count=len(drawn), names=state_names_text(drawn)),
                ranks=ranks,
                certainty=Certainty.LIKELY,
            )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Make the adapter save the modules trained beside it, or make ZeRO-3 gather the weights for the save."""
        result = result_report(record)
        lost = [row.name for row in result.states if row.status == "not-written"] if result is not None else []
        yield from modules_to_save_fixes(self, lost, run)
        yield from gather_on_save_fixes(self, run)
