from gonogo.evidence.rehearsal.failures import failure_places
from gonogo.hazards.log_rule import LoggedHazard
from gonogo.hazards.rule import Certainty, Findings, RehearsalRecord


class TildeNotExpanded(LoggedHazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A path of a folder named ``~`` in the message of a failure.

        Likely only: the machine that trains may have that folder, made by the same mistake.
        """
        for rank in record.ranks:
            message = f"{rank.failure.type}: {rank.failure.message}" if rank.failure is not None else ""
            for sign in self.signs if "~/" in message else ():
                found = sign.says.search(message) if sign.says is not None else None
                if rank.failure is not None and found is not None:
                    yield self.finding(
                        self.cause.format(path=found.group("path")),
                        certainty=Certainty.LIKELY,
                        spans=failure_places(rank.failure),
                        ranks=(rank.rank,),
                    )
                    break
