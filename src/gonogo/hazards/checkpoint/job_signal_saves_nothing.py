from gonogo.evidence.rehearsal.checkpoints.disk_use import signalled_save
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord


class JobSignalSavesNothing(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A program that the scheduler's signal ends, that doesn't save after it, or whose save takes too long."""
        first = record.first_life or record
        told, sent = signalled_save(first), first.signal
        if told is None or sent is None:
            return
        if told.saved_at is not None and (told.write_seconds or 0) <= told.seconds:
            return
        cause, certain, cure = self.texts["no_save"], told.handling == "ignored", self.cures[0]
        if told.handling == "not-passed-on":
            cause, certain, cure = self.texts["not_passed_on"], True, self.cures[1]
        elif told.handling == "default":
            cause, certain = self.texts["no_handler"], True
        elif told.saved_at is not None:
            certain = first.write_bytes_per_second is not None
            by_launcher = told.seconds < sent.seconds
            cause = self.texts["killed_by_launcher"] if by_launcher else self.texts["too_slow"]
            cure = self.cures[int(by_launcher)]
        yield self.finding(
            cause.format(
                name=told.name,
                seconds=sent.seconds,
                step=told.step,
                write=round(told.write_seconds or 0),
                launcher=sent.launcher,
                passed=", ".join(sent.passed) or "-",
                grace=told.seconds,
            ),
            ranks=tuple(rank.rank for rank in first.ranks),
            certainty=Certainty.CERTAIN if certain else Certainty.LIKELY,
            cure=cure,
            confirm=() if certain else self.texts["confirm"],
        )
