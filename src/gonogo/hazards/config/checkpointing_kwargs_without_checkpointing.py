from gonogo.hazards.facts.how_it_trains import mentions, with_plain_arguments, with_trainer
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run, Severity, Text


class CheckpointingKwargsWithoutCheckpointing(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """The kwargs among the arguments, without the argument that turns it on."""
        arguments = run.arguments
        if not arguments.has("gradient_checkpointing_kwargs") or not with_trainer(run):
            return
        kwargs, on = arguments.get("gradient_checkpointing_kwargs"), arguments.get("gradient_checkpointing")
        newer = arguments.get("activation_checkpointing")
        off = on.truth is False or (on.absent and with_plain_arguments(run))
        if not off or newer.truth is True or (kwargs.known and not kwargs.value):
            return
        if mentions(run, "gradient_checkpointing_enable", "gradient_checkpointing = True", "prepare_model_for_kbit"):
            return
        yield self.finding(
            Text(
                "gradient_checkpointing_kwargs is given, and gradient_checkpointing is {state}: nothing is "
                "checkpointed.",
                "给了 gradient_checkpointing_kwargs，而 gradient_checkpointing {state}：梯度检查点并未启用。",
            ).format(
                state=Text("not given (false by default)", "没有给出（默认 false）")
                if on.absent
                else Text("false", "为 false")
            ),
            severity=Severity.WARNING,
            certainty=Certainty.LIKELY,
            cure=(
                Text("Pass gradient_checkpointing=True as well", "同时传入 gradient_checkpointing=True"),
                Text("Or remove gradient_checkpointing_kwargs", "或去掉 gradient_checkpointing_kwargs"),
            ),
            spans=(kwargs.span(), on.span(Text("switched off here", "此处关闭"))),
        )
