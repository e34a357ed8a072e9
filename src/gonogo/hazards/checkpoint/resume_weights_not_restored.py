from gonogo.hazards.checkpoint._lost_states import listed, ranks_of, resumed
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, translated

_LOST = ("not-written", "not-read", "partly", "other-state")


class ResumeWeightsNotRestored(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Trained weights, and saved buffers, that the second life doesn't have; frozen ones that were drawn twice."""
        life = resumed(record)
        if life is None:
            return
        weights = [row for row in life.states if row.kind != "optimizer"]
        lost = [row for row in weights if row.status in _LOST and (row.trained or row.kind == "buffer")]
        drawn = [row for row in weights if row.status == "drawn-anew"]
        for rows, certainty in ((lost, Certainty.CERTAIN), (drawn, Certainty.LIKELY)):
            if rows:
                yield self.finding(
                    translated("Of {all} model weights, the resume loses these: {rows}.").format(
                        all=len(weights), rows=listed(rows)
                    ),
                    certainty=certainty,
                    ranks=ranks_of(rows),
                )
