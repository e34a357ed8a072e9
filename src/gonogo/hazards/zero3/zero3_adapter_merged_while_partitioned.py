from gonogo.hazards.facts.zero_files import gathered, stage_span, tests_the_stage, text_of
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Severity, Text
from gonogo.hazards.zero3._loading import knows_zero3


class Zero3AdapterMergedWhilePartitioned(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """Merges outside of ``GatheredParameters``, once ZeRO-3 is on."""
        if run.zero_stage != 3 or b".merge_" not in script.source.data:
            return
        for call in script.calls("*.merge_and_unload", "*.merge_adapter"):
            if gathered(script, call.node) or tests_the_stage(script, call.node):
                continue
            known = knows_zero3(script, call.node)
            if known is False or (known is None and not script.imports("deepspeed")):
                continue
            yield self.finding(
                Text(
                    "`{code}` adds the adapter to base weights that ZeRO-3 has partitioned, empty tensors of shape "
                    "[0]: “The size of tensor a (0) must match the size of tensor b”.",
                    "`{code}` 把适配器加到已被 ZeRO-3 切分的基础权重上，而它们是形状 [0] 的空张量：“The size of tensor "
                    "a (0) must match the size of tensor b”。",
                ).format(code=text_of(script, call.node.func) + "()"),
                certainty=Certainty.LIKELY,
                severity=Severity.ERROR,
                cure=(
                    Text(
                        "Save the adapter, and merge in a separate process without ZeRO-3",
                        "保存适配器，在不使用 ZeRO-3 的单独进程中合并",
                    ),
                    Text(
                        "Or gather around it, where the whole model fits: with "
                        "deepspeed.zero.GatheredParameters(list({model}.parameters()))",
                        "或在容得下整个模型时先聚合：with "
                        "deepspeed.zero.GatheredParameters(list({model}.parameters()))",
                    ).format(model=text_of(script, call.receiver) if call.receiver is not None else "model"),
                ),
                spans=(call.place.span(), stage_span(run)),
                confirm=Text("The model was loaded while ZeRO-3 was on", "模型是在 ZeRO-3 生效时加载的"),
            )
