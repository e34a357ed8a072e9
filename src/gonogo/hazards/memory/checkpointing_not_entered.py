from gonogo.hazards.facts.as_run import facts_of_ranks_with_steps
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord


class CheckpointingNotEntered(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Checkpointing requested by the model's flags or the Trainer's argument, but seen on no rank with a step."""
        runs = facts_of_ranks_with_steps(record)
        if not runs or not all(run.asked.checkpointing and not run.recomputed for _, run in runs):
            return
        yield self.finding(
            self.texts["cause"].format(model=runs[0][1].model, steps=runs[0][0].steps),
            ranks=tuple(rank.rank for rank, _ in runs),
        )
