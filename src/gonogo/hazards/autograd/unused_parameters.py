"""unused-parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.evidence.rehearsal.failures import few
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.autograd._never_used import never_used
from gonogo.hazards.facts.parameter_names import group_by_module
from gonogo.hazards.facts.training_script import makers, mentions, trained
from gonogo.hazards.hazard import Hazard

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import Script

# What looks at modules otherwise than by their names, or leaves them out.
_LOOKED_THROUGH = (
    *(b"requires_grad", b"getattr(", b".children()", b".modules()", b"named_children", b"named_modules", b"_modules"),
    *(b"register_forward", b"load_state_dict", b"__getattr__"),
)


class UnusedParameters(Hazard):
    """Trainable parameters that no forward uses.

    ## What happens
    They are never trained, and take memory for optimizer states. Under plain DDP the second step ends with "Expected to
    have finished reduction in the prior iteration before starting a new one". Under ZeRO-3, ranks of which some use a
    part and others do not wait for each other for ever.

    ## Why
    A part of the model is built and trainable but not called: a head for another task, a vision or audio tower with a
    text-only batch, an adapter on a layer that is skipped.

    ## Cure
    Freeze what is not to be trained (`requires_grad_(False)`) or do not build it. Under DDP, where it must stay:
    `ddp_find_unused_parameters=True`. A tower that only some batches use: run it on a dummy input in the others.

    ## When it is safe
    ZeRO-1 and ZeRO-2 train on. Experts of a mixture are used as the router decides, which no rehearsal can know: they
    are left out here.

    ## Sources
    - https://github.com/pytorch/pytorch/issues/43259: DDP's message, and when it comes
    - https://github.com/deepspeedai/DeepSpeed/issues/777: unused parameters under ZeRO-2
    - https://github.com/LiuY1Chen/OOTDiffusion-train/issues/8: trainable modules that the loss does not see
    """

    page_zh = """可训练但没有任何前向使用的参数。

    ## 现象
    它们永远不会被训练，却占用优化器状态的显存。普通 DDP 下第二步以 “Expected to have finished reduction in the prior
    iteration before starting a new one” 结束。ZeRO-3 下若有的 rank 用到某部分而有的没有，各 rank 会一直互相等待。

    ## 原因
    模型的某部分已构建且可训练，却没有被调用：用于其他任务的头、纯文本 batch 下的视觉或音频塔、被跳过的层上的适配器。

    ## 解决办法
    冻结不训练的部分（`requires_grad_(False)`），或不构建它。DDP 下若必须保留：`ddp_find_unused_parameters=True`。只有部
    分 batch 用到的塔：在其余 batch 中用假输入执行它。

    ## 何时安全
    ZeRO-1 与 ZeRO-2 可以继续训练。混合专家中的专家由路由决定是否使用，排练无法得知，因此不计入。

    ## 来源
    - https://github.com/pytorch/pytorch/issues/43259：DDP 的报错及其发生条件
    - https://github.com/deepspeedai/DeepSpeed/issues/777：ZeRO-2 下未使用的参数
    - https://github.com/LiuY1Chen/OOTDiffusion-train/issues/8：损失未用到的可训练模块
    """

    name = "unused-parameters"
    title = Text(en="Trainable parameters take part in no forward", zh="有可训练参数未参与任何前向")
    sources = (
        "https://github.com/pytorch/pytorch/issues/43259",
        "https://github.com/deepspeedai/DeepSpeed/issues/777",
        "https://github.com/LiuY1Chen/OOTDiffusion-train/issues/8",
    )

    def in_script(self, script: Script, run: Run) -> Iterator[Finding]:
        """A layer that a trained module builds and nothing of the project names again; plain DDP has its own hazard."""
        if b"nn.Module" not in script.source.data or mentions(run, script, *_LOOKED_THROUGH):
            return
        for call, node in trained(script):
            if call.method == "DistributedDataParallel":
                continue
            made = makers(script, node)
            for owner, layer, statement in never_used(script, run, {one.name for one in made}):
                yield self.finding(
                    Text(
                        en="{owner} builds self.{layer} and nothing uses it: it is never trained, and takes memory.",
                        zh="{owner} 创建了 self.{layer} 却没有任何地方使用：它不会被训练，却占用内存。",
                    ).format(owner=owner.name, layer=layer),
                    certainty=Certainty.LIKELY,
                    severity=Severity.WARNING,
                    cure=(
                        Text(
                            "Do not build what the forward does not use, or use it",
                            "不要创建 forward 不使用的层，或在 forward 中使用它",
                        ),
                    ),
                    spans=(
                        owner.script.place(statement).span(),
                        script.place(call.node.func).span(Text("trained here", "在此处训练")),
                    ),
                    parameter=f"{layer}.weight",
                )

    def in_rehearsal(self, record: RehearsalRecord) -> Iterator[Finding]:
        """What no rank has used, of those that completed a step: before that, nothing has been used yet."""
        stepped = [rank for rank in record.ranks if rank.steps > 0]
        everywhere = set.intersection(*(set(rank.unused_parameters) for rank in stepped)) if stepped else set()
        listed = stepped[0].unused_parameters if stepped else []
        names = [name for name in listed if name in everywhere and ".experts." not in name]
        if not names:
            return
        yield self.finding(
            Text(
                en="{count} trainable parameters were used in no forward of the rehearsal: {names}.",
                zh="排练的所有前向都没有用到 {count} 个可训练参数：{names}。",
            ).format(count=len(names), names=few(group_by_module(names))),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            cure=(
                Text(
                    en="Freeze them (requires_grad_(False)), or do not build that part",
                    zh="冻结它们（requires_grad_(False)），或不构建该部分",
                ),
                Text(
                    en="If only some batches use them: run the part on a dummy input in the others; under DDP set "
                    "ddp_find_unused_parameters=True",
                    zh="若只有部分 batch 用到：在其余 batch 中用假输入执行；DDP 下设 ddp_find_unused_parameters=True",
                ),
            ),
            ranks=tuple(rank.rank for rank in stepped),
            module=names[0].rpartition(".")[0] or None,
            parameter=names[0],
        )
