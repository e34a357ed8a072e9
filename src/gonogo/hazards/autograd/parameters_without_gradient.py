"""parameters-without-gradient."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.rehearsal.failures import few
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.parameter_names import group_by_module
from gonogo.hazards.hazard import Hazard


class ParametersWithoutGradient(Hazard):
    """Trainable parameters run in the forward and never get a gradient.

    ## What happens
    Training goes on and these parameters never change. Where it is all of them, the loss does not fall, or the backward
    says "element 0 of tensors does not require grad". Under DDP: "Expected to have finished reduction".

    ## Why
    The graph between them and the loss is cut: by `detach()`, `torch.no_grad()` or `.item()`; by a loss that leaves out
    their output; or by reentrant gradient checkpointing of a model whose inputs need no gradient, as with LoRA on a
    frozen embedding (torch warns: "None of the inputs have requires_grad=True. Gradients will be None").

    ## Cure
    With checkpointing and adapters: `model.enable_input_require_grads()`, or
    `gradient_checkpointing_kwargs={"use_reentrant": False}`. Else mend the cut, or freeze what is not to be trained.

    ## When it is safe
    Where the parameters are not meant to be trained: freeze them and the warning ends. Experts of a mixture depend on
    the router, which no rehearsal can know: they are left out here.

    ## Sources
    - https://github.com/huggingface/trl/issues/2486: LoRA and checkpointing, with torch's warning
    - https://github.com/lm-sys/FastChat/issues/581: no gradients with LoRA and checkpointing
    - https://github.com/lm-sys/FastChat/pull/1489: the cure, enable_input_require_grads
    """

    page_zh = """可训练参数参与了前向，却从未得到梯度。

    ## 现象
    训练照常进行，而这些参数从不变化。若全部如此，损失不会下降，或反向报 “element 0 of tensors does not require grad”。
    DDP 下报 “Expected to have finished reduction”。

    ## 原因
    它们与损失之间的计算图被切断：`detach()`、`torch.no_grad()` 或 `.item()`；损失没有用到它们的输出；或对输入不需要梯度
    的模型使用可重入的梯度检查点，例如嵌入被冻结时的 LoRA（torch 警告：“None of the inputs have requires_grad=True.
    Gradients will be None”）。

    ## 解决办法
    检查点加适配器时：`model.enable_input_require_grads()`，或
    `gradient_checkpointing_kwargs={"use_reentrant": False}`。否则接上被切断处，或冻结不训练的部分。

    ## 何时安全
    这些参数本来就不需要训练时：冻结它们，警告就会消失。混合专家中的专家取决于路由，排练无法得知，因此不计入。

    ## 来源
    - https://github.com/huggingface/trl/issues/2486：LoRA 加检查点，以及 torch 的警告
    - https://github.com/lm-sys/FastChat/issues/581：LoRA 加检查点时没有梯度
    - https://github.com/lm-sys/FastChat/pull/1489：解决办法 enable_input_require_grads
    """

    name = "parameters-without-gradient"
    title = Text(en="Trainable parameters get no gradient", zh="有可训练参数得不到梯度")
    sources = (
        "https://github.com/huggingface/trl/issues/2486",
        "https://github.com/lm-sys/FastChat/issues/581",
        "https://github.com/lm-sys/FastChat/pull/1489",
    )

    def in_rehearsal(self, record: RehearsalRecord) -> Iterator[Finding]:
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
            en="Look for detach(), torch.no_grad() or a loss that leaves out the output of {module}; freeze the part "
            "if it is not to be trained",
            zh="检查 {module} 的输出是否经过 detach()、torch.no_grad()，或没有进入损失；若不训练该部分，请冻结它",
        ).format(module=names[0].rpartition(".")[0] or "?")
        inputs = Text(
            en="With gradient checkpointing: model.enable_input_require_grads(), or "
            'gradient_checkpointing_kwargs={"use_reentrant": False}',
            zh="使用梯度检查点时：model.enable_input_require_grads()，或 "
            'gradient_checkpointing_kwargs={"use_reentrant": False}',
        )
        yield self.finding(
            Text(
                en="{count} trainable parameters took part in a forward and got no gradient in any step: {names}. They "
                "will not be trained.",
                zh="有 {count} 个可训练参数参与了前向，但任何一步都没有得到梯度：{names}。它们不会被训练。",
            ).format(count=len(names), names=few(group_by_module(names))),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            cure=(inputs, reconnect) if adapters else (reconnect, inputs),
            ranks=tuple(rank.rank for rank in stepped),
            module=names[0].rpartition(".")[0] or None,
            parameter=names[0],
        )
