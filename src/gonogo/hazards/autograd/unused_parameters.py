from gonogo.evidence.rehearsal.failures import few
from gonogo.hazards.autograd._never_used import never_used
from gonogo.hazards.facts.parameter_names import group_by_module
from gonogo.hazards.facts.training_script import makers, mentions, trained
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Run, Script, Severity, Text

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
    ## Example
    ```python
    self.margin = nn.Linear(64, 1)           # wrong: no forward calls it
    return self.score(x) - self.margin(x)    # right: it is used, or not built
    ```
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

    name = "unused-parameters"
    title = Text("Trainable parameters take part in no forward", "有可训练参数未参与任何前向")

    def in_script(self, script: Script, run: Run) -> Findings:
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
                        "{owner} builds self.{layer} and nothing uses it: it is never trained, and takes memory.",
                        "{owner} 创建了 self.{layer} 却没有任何地方使用：它不会被训练，却占用内存。",
                    ).format(owner=owner.name, layer=layer),
                    certainty=Certainty.LIKELY,
                    severity=Severity.WARNING,
                    cure=Text(
                        "Do not build what the forward does not use, or use it",
                        "不要创建 forward 不使用的层，或在 forward 中使用它",
                    ),
                    spans=(
                        owner.script.place(statement).span(),
                        script.place(call.node.func).span(Text("trained here", "在此处训练")),
                    ),
                    parameter=f"{layer}.weight",
                )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """What no rank has used, of those that completed a step: before that, nothing has been used yet."""
        stepped = [rank for rank in record.ranks if rank.steps > 0]
        everywhere = set.intersection(*(set(rank.unused_parameters) for rank in stepped)) if stepped else set()
        listed = stepped[0].unused_parameters if stepped else []
        names = [name for name in listed if name in everywhere and ".experts." not in name]
        if not names:
            return
        yield self.finding(
            Text(
                "{count} trainable parameters were used in no forward of the rehearsal: {names}.",
                "排练的所有前向都没有用到 {count} 个可训练参数：{names}。",
            ).format(count=len(names), names=few(group_by_module(names))),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            cure=(
                Text(
                    "Freeze them (requires_grad_(False)), or do not build that part",
                    "冻结它们（requires_grad_(False)），或不构建该部分",
                ),
                Text(
                    "If only some batches use them: run the part on a dummy input in the others; under DDP set "
                    "ddp_find_unused_parameters=True",
                    "若只有部分 batch 用到：在其余 batch 中用假输入执行；DDP 下设 ddp_find_unused_parameters=True",
                ),
            ),
            ranks=tuple(rank.rank for rank in stepped),
            module=names[0].rpartition(".")[0] or None,
            parameter=names[0],
        )
