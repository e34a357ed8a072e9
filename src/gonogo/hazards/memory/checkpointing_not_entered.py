from gonogo.hazards.facts.as_run import stepped_runs
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Severity, Text


class CheckpointingNotEntered(Hazard):
    """Gradient checkpointing is asked for, and no forward is run again in backward.
    ## What happens
    Activations take as much memory as without checkpointing, and no message says so. The run may go out of memory that
    was meant to fit.
    ## Why
    The model's code never looks at the flag (a custom model, a layer that is wrapped or replaced), the model is in eval
    mode (`model.train()` was not called; transformers checkpoints in training mode only), or the layers' inputs need no
    gradient: with `use_reentrant=True` and frozen embeddings nothing is kept to go back to.
    ## Example
    ```python
    model.gradient_checkpointing_enable()
    model.eval()     # wrong: layers checkpoint in training mode only
    model.train()    # right
    ```
    ## Cure
    Call `model.train()` after the model was built or evaluated. With a frozen base model:
    `model.enable_input_require_grads()`, or `use_reentrant=False`. In a model of your own: call
    `torch.utils.checkpoint.checkpoint(layer, …, use_reentrant=False)` in its forward.
    ## When it is safe
    Where memory suffices; recomputation only costs time.
    ## Sources
    - https://github.com/victorchall/EveryDream2trainer/pull/246: checkpointing without training mode, and out of memory
    - https://huggingface.co/docs/transformers/main_classes/trainer: what gradient_checkpointing is to save
    - https://docs.pytorch.org/docs/stable/checkpoint.html: what reentrant checkpointing needs of its inputs
    """

    name = "checkpointing-not-entered"
    explains_failure = False
    title = Text(
        "Gradient checkpointing is asked for, and nothing is recomputed", "要求了梯度检查点，却没有重算任何前向"
    )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Asked for by the model's flags or the Trainer's argument, and not seen on any rank that stepped."""
        runs = stepped_runs(record)
        if not runs or not all(run.asked.checkpointing and not run.recomputed for _, run in runs):
            return
        yield self.finding(
            Text(
                "{model} is set up with gradient checkpointing, and in {steps} steps no module's forward ran again in "
                "backward: all activations were kept.",
                "{model} 设置了梯度检查点，但在 {steps} 步中没有任何模块的前向在反向中重新执行：全部激活都被保留。",
            ).format(model=runs[0][1].model, steps=runs[0][0].steps),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            cure=(
                Text("Call model.train() before the training loop", "在训练循环之前调用 model.train()"),
                Text(
                    "With a frozen base model: model.enable_input_require_grads(), or use_reentrant=False",
                    "基座被冻结时：调用 model.enable_input_require_grads()，或使用 use_reentrant=False",
                ),
                Text(
                    "In a model of your own, call torch.utils.checkpoint.checkpoint in its forward",
                    "自己的模型：在其 forward 中调用 torch.utils.checkpoint.checkpoint",
                ),
            ),
            ranks=tuple(rank.rank for rank, _ in runs),
        )
