from gonogo.hazards.facts.how_it_trains import mentions, with_plain_arguments, with_trainer
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run, Severity, Text


class CheckpointingKwargsWithoutCheckpointing(Hazard):
    """gradient_checkpointing_kwargs is given, and gradient checkpointing is off.
    ## What happens
    Activations take as much memory as without checkpointing: the kwargs alone turn nothing on, and no message says
    so. The run may go out of memory that was meant to fit.
    ## Why
    `gradient_checkpointing_kwargs={"use_reentrant": ...}` only says how to checkpoint. Whether is said by
    `gradient_checkpointing`, which is false by default in TrainingArguments.
    ## Example
    ```python
    TrainingArguments(gradient_checkpointing_kwargs={"use_reentrant": False})   # wrong: nothing is checkpointed
    TrainingArguments(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False})   # right
    ```
    ## Cure
    Pass `--gradient_checkpointing` (`gradient_checkpointing=True`), or remove the kwargs.
    ## When it is safe
    Where the script calls `model.gradient_checkpointing_enable()` itself.
    ## Sources
    - https://huggingface.co/docs/transformers/main_classes/trainer: the two arguments
    - https://github.com/huggingface/transformers/issues/23808: what checkpointing needs besides
    """

    name = "checkpointing-kwargs-without-checkpointing"
    title = Text(
        "gradient_checkpointing_kwargs has no effect: gradient checkpointing is off",
        "gradient_checkpointing_kwargs 不起作用：没有打开梯度检查点",
    )

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
