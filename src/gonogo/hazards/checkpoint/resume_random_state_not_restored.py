from gonogo.hazards.checkpoint._lost_states import resumed_life_report
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord, translated


class ResumeRandomStateNotRestored(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Neither torch's CPU generator nor the accelerator's is restored to a state of the first run."""
        life = resumed_life_report(record)
        of_torch = [row for row in life.random if row.generator in ("torch", "accelerator")] if life is not None else []
        if not of_torch or any(row.status in ("restored", "unknown") for row in of_torch):
            return
        saved = any(row.status == "not-read" for row in of_torch)
        yield self.finding(
            translated("Random states were saved, but resuming does not restore them.")
            if saved
            else translated("No random state was saved."),
            ranks=tuple(rank.rank for rank in record.ranks),
        )
