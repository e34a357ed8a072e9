from gonogo.hazards.facts.as_run import stepped_runs
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Severity, Text


class CheckpointingNotEntered(Hazard):
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
                    "In your own model, call torch.utils.checkpoint.checkpoint in its forward",
                    "自己的模型：在其 forward 中调用 torch.utils.checkpoint.checkpoint",
                ),
            ),
            ranks=tuple(rank.rank for rank, _ in runs),
        )
