from gonogo.hazards.facts.training_framework import mentions, uses_stock_training_arguments, uses_trainer
from gonogo.hazards.rule import Environment, Findings, Hazard, Run, translated


class CheckpointingKwargsWithoutCheckpointing(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """gradient_checkpointing_kwargs without gradient_checkpointing."""
        arguments = run.arguments
        if not arguments.has("gradient_checkpointing_kwargs") or not uses_trainer(run):
            return
        kwargs, on = arguments.get("gradient_checkpointing_kwargs"), arguments.get("gradient_checkpointing")
        newer = arguments.get("activation_checkpointing")
        off = on.truth is False or (on.absent and uses_stock_training_arguments(run))
        if not off or newer.truth is True or (kwargs.known and not kwargs.value):
            return
        if mentions(run, "gradient_checkpointing_enable", "gradient_checkpointing = True", "prepare_model_for_kbit"):
            return
        yield self.finding(
            self.texts["cause"].format(
                state=translated("not given (false by default)") if on.absent else translated("false")
            ),
            spans=(kwargs.span(), on.span(translated("switched off here"))),
        )
