from gonogo.evidence.rehearsal.failures import few
from gonogo.hazards.facts.parameter_names import group_by_module
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Severity, Text


class ParametersWithoutGradient(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """What no rank has a gradient for, of those that completed a step: before that, no gradient is due."""
        stepped = [rank for rank in record.ranks if rank.steps > 0]
        without = [set(rank.parameters_without_gradient) | set(rank.unused_parameters) for rank in stepped]
        everywhere = set.intersection(*without) if without else set()
        listed = dict.fromkeys(name for rank in stepped for name in rank.parameters_without_gradient)
        names = [name for name in listed if name in everywhere and ".experts." not in name]
        if not names:
            return
        adapters = [name for name in names if "lora_" in name or "adapter" in name]
        reconnect = Text(
            "Look for detach(), torch.no_grad() or a loss that leaves out the output of {module}; freeze the part if "
            "it is not to be trained",
            "检查 {module} 的输出是否经过 detach()、torch.no_grad()，或没有进入损失；若不训练该部分，请冻结它",
        ).format(module=names[0].rpartition(".")[0] or "?")
        inputs = Text(
            "With gradient checkpointing: model.enable_input_require_grads(), or "
            'gradient_checkpointing_kwargs={"use_reentrant": False}',
            "使用梯度检查点时：model.enable_input_require_grads()，或 "
            'gradient_checkpointing_kwargs={"use_reentrant": False}',
        )
        yield self.finding(
            Text(
                "{count} trainable parameters took part in a forward and got no gradient in any step: {names}. They "
                "will not be trained.",
                "有 {count} 个可训练参数参与了前向，但任何一步都没有得到梯度：{names}。它们不会被训练。",
            ).format(count=len(names), names=few(group_by_module(names))),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            cure=(inputs, reconnect) if adapters else (reconnect, inputs),
            ranks=tuple(rank.rank for rank in stepped),
            module=names[0].rpartition(".")[0] or None,
            parameter=names[0],
        )
