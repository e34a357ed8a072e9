from collections.abc import Iterator

from gonogo.evidence.rehearsal.life_table import life_report
from gonogo.hazards.checkpoint._lost_states import may_have_resumed
from gonogo.hazards.facts.left_out_of_checkpoint import fixes_for_unread_checkpoint
from gonogo.hazards.rule import Finding, Findings, Fix, Hazard, RehearsalRecord, Run


class ResumeReadsNoCheckpoint(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A run told to resume that trains, though none of its state comes from a file of the first run."""
        life = life_report(record)
        if life is None or record.resumes_as_given or not life.trains_on or may_have_resumed(life):
            return
        yield self.finding(
            self.texts["cause"].format(step=life.steps_before_save, count=len(life.files)),
            ranks=tuple(rank.rank for rank in record.ranks),
        )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Remove what keeps the program from looking for the checkpoint, or pass it the checkpoint's path."""
        yield from fixes_for_unread_checkpoint(self, run)
