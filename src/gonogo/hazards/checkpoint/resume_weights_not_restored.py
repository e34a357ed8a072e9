from collections.abc import Iterator

from gonogo.evidence.rehearsal.life_table import life_report
from gonogo.hazards.checkpoint._lost_states import ranks_of_rows, resumed_life_report, states_by_status_text
from gonogo.hazards.facts.left_out_of_checkpoint import gather_on_save_fixes, modules_to_save_fixes
from gonogo.hazards.rule import Certainty, Finding, Findings, Fix, Hazard, RehearsalRecord, Run, translated

_LOST_STATUSES = ("not-written", "not-read", "partly", "other-state")


class ResumeWeightsNotRestored(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Trained weights or saved buffers that the second run did not restore; frozen ones initialized twice."""
        life = resumed_life_report(record)
        if life is None:
            return
        weights = [row for row in life.states if row.kind in ("parameter", "buffer")]
        lost = [row for row in weights if row.status in _LOST_STATUSES and (row.trained or row.kind == "buffer")]
        drawn = [row for row in weights if row.status == "drawn-anew"]
        for rows, certainty in ((lost, Certainty.CERTAIN), (drawn, Certainty.LIKELY)):
            if rows:
                yield self.finding(
                    translated("Of {all} model weights, these are lost on resume: {rows}.").format(
                        all=len(weights), rows=states_by_status_text(rows)
                    ),
                    certainty=certainty,
                    ranks=ranks_of_rows(rows),
                )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Make the adapter save the modules that are trained beside it."""
        life = life_report(record)
        states = life.states if life is not None else ()
        lost = [row.name for row in states if row.status == "not-written" and row.kind == "parameter" and row.trained]
        yield from modules_to_save_fixes(self, lost, run)
        yield from gather_on_save_fixes(self, run)
