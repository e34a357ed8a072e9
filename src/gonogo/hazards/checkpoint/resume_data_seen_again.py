from gonogo.hazards.checkpoint._lost_states import resumed_life_report
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord, translated

_CAUSES = {
    "from-the-start": translated(
        "After the resume, the run trains on the batch it began with: what it had read before the save is "
        "trained on twice."
    ),
    "seen-again": translated("After the resume, the run trains on a batch that it already trained on before the save."),
}


class ResumeDataSeenAgain(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """The second run's first batch has the same values as one that the first run trained on before its save."""
        life = resumed_life_report(record)
        cause = _CAUSES.get(life.data) if life is not None else None
        if cause is not None:
            yield self.finding(cause, ranks=tuple(rank.rank for rank in record.ranks))
