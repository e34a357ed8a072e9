from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord


class OptimizerWithoutGradients(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that ran a backward and an optimizer step, each time without any gradient."""
        idle = [rank for rank in record.ranks if rank.as_run is not None and rank.as_run.idle]
        if not idle:
            return
        run = idle[0].as_run
        assert run is not None
        yield self.finding(
            self.texts["cause"].format(optimizer=run.optimizer, steps=idle[0].steps),
            ranks=tuple(rank.rank for rank in idle),
        )
