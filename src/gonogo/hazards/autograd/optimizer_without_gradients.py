from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, translated


class OptimizerWithoutGradients(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that ran a backward and an optimizer step, each time without any gradient."""
        idle = [rank for rank in record.ranks if rank.as_run is not None and rank.as_run.idle]
        if not idle:
            return
        run = idle[0].as_run
        assert run is not None
        yield self.finding(
            translated(
                "{optimizer} took {steps} steps, but none of its parameters had a gradient in any of them: the "
                "backward pass reached tensors other than those it holds. Nothing is trained."
            ).format(optimizer=run.optimizer, steps=idle[0].steps),
            certainty=Certainty.CERTAIN,
            cure=(
                translated(
                    "Create the optimizer last, from the model that is trained: after it is wrapped, moved and given "
                    "adapters"
                ),
                translated("Under FSDP1: set use_orig_params=True (fsdp_use_orig_params: true)"),
            ),
            ranks=tuple(rank.rank for rank in idle),
        )
