from gonogo.hazards.checkpoint._lost_states import resumed
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Severity, Text


class ResumeRandomStateNotRestored(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Neither torch's own generator nor the accelerator's is set to a state of the first life."""
        life = resumed(record)
        of_torch = [row for row in life.random if row.generator in ("torch", "accelerator")] if life is not None else []
        if not of_torch or any(row.status in ("restored", "unknown") for row in of_torch):
            return
        saved = any(row.status == "not-read" for row in of_torch)
        yield self.finding(
            Text("Random states were saved, and are not set by the resume.", "随机状态已保存，但恢复时没有设置。")
            if saved
            else Text("No random state was saved.", "没有保存随机状态。"),
            certainty=Certainty.CERTAIN,
            severity=Severity.WARNING,
            ranks=tuple(rank.rank for rank in record.ranks),
        )
