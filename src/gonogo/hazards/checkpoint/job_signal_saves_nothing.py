from gonogo.evidence.rehearsal.checkpoints.disk_use import signalled_save
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord


class JobSignalSavesNothing(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A program that the scheduler's signal ends, that doesn't save after it, or whose save takes too long."""
        first = record.first_life or record
        told = signalled_save(first)
        if told is None or (told.saved_at is not None and (told.write_seconds or 0) <= told.seconds):
            return
        cause, certain = self.texts["no_save"], told.handling == "ignored"
        if told.handling == "default":
            cause, certain = self.texts["no_handler"], True
        elif told.saved_at is not None:
            cause, certain = self.texts["too_slow"], first.write_bytes_per_second is not None
        yield self.finding(
            cause.format(name=told.name, seconds=told.seconds, step=told.step, write=round(told.write_seconds or 0)),
            ranks=tuple(rank.rank for rank in first.ranks),
            certainty=Certainty.CERTAIN if certain else Certainty.LIKELY,
            cure=self.page.cures,
            confirm=() if certain else self.texts["confirm"],
        )
