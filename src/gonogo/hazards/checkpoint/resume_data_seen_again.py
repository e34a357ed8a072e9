from gonogo.hazards.checkpoint._lost_states import resumed
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Severity, Text

_CAUSES = {
    "from-the-start": Text(
        "Resumed, the run trains on the batch with which it began: what it had read before the save counts twice.",
        "恢复后，运行从最初的批次开始训练：保存之前读过的数据被训练两次。",
    ),
    "seen-again": Text(
        "Resumed, the run trains on a batch that it had trained on before the save.",
        "恢复后，运行训练的是保存之前已训练过的批次。",
    ),
}


class ResumeDataSeenAgain(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """The first batch of the second life, known by its values, is one of the first life's before its save."""
        life = resumed(record)
        cause = _CAUSES.get(life.data) if life is not None else None
        if cause is not None:
            yield self.finding(
                cause,
                certainty=Certainty.CERTAIN,
                severity=Severity.WARNING,
                ranks=tuple(rank.rank for rank in record.ranks),
            )
