"""zero3-adapter-merged-while-divided."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Script
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.zero_files import gathered, stage_span, text_of, told_apart
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.zero3._loading import knows_zero3


class Zero3AdapterMergedWhileDivided(Hazard):
    """`merge_and_unload` or `merge_adapter` while ZeRO-3 is on.

    ## What happens
    "RuntimeError: The size of tensor a (0) must match the size of tensor b (4096) at non-singleton dimension 1", in
    PEFT's `merge`.

    ## Why
    Merging adds B·A to the weight of each base layer. Under ZeRO-3 that weight is an empty tensor of shape [0], on
    whichever rank.

    ## Cure
    Save the adapter, and merge in a separate process without ZeRO-3; or gather around it, where the whole model
    fits: `with deepspeed.zero.GatheredParameters(list(model.parameters())):`.

    ## When it is safe
    ZeRO-2 and lower; a merge in a process without ZeRO-3.

    ## Sources
    - https://github.com/huggingface/peft/issues/297: merging fails under ZeRO-3, and works under ZeRO-2
    - https://github.com/hiyouga/LlamaFactory/issues/2081: the same when an adapter is loaded for inference
    """

    page_zh = """在 ZeRO-3 生效时调用 `merge_and_unload` 或 `merge_adapter`。

    ## 现象
    PEFT 的 `merge` 中报 “RuntimeError: The size of tensor a (0) must match the size of tensor b (4096) at
    non-singleton dimension 1”。

    ## 原因
    合并会把 B·A 加到每个基础层的权重上。ZeRO-3 下，任何 rank 上该权重都是形状 [0] 的空张量。

    ## 解决办法
    保存适配器，在不使用 ZeRO-3 的单独进程中合并；或在整个模型放得下时先聚合：
    `with deepspeed.zero.GatheredParameters(list(model.parameters())):`。

    ## 何时安全
    ZeRO-2 及以下；或在没有 ZeRO-3 的进程中合并。

    ## 来源
    - https://github.com/huggingface/peft/issues/297：ZeRO-3 下合并失败，ZeRO-2 正常
    - https://github.com/hiyouga/LlamaFactory/issues/2081：推理加载适配器时的同一问题
    """

    name = "zero3-adapter-merged-while-divided"
    title = Text(
        en="Adapters are merged into weights that ZeRO-3 has divided",
        zh="把适配器合并进已被 ZeRO-3 切分的权重",
    )
    sources = (
        "https://github.com/huggingface/peft/issues/297",
        "https://github.com/hiyouga/LlamaFactory/issues/2081",
    )

    def in_script(self, script: Script, run: Run) -> Iterator[Finding]:
        """Merges outside of ``GatheredParameters``, once ZeRO-3 is on."""
        if run.zero_stage != 3 or b".merge_" not in script.source.data:
            return
        for call in script.calls("*.merge_and_unload", "*.merge_adapter"):
            if gathered(script, call.node) or told_apart(script, call.node):
                continue
            known = knows_zero3(script, call.node)
            if known is False or (known is None and not script.imports("deepspeed")):
                continue
            yield self.finding(
                Text(
                    en="`{code}` adds the adapter to base weights that ZeRO-3 has divided, empty tensors of shape [0]: "
                    "“The size of tensor a (0) must match the size of tensor b”.",
                    zh="`{code}` 把适配器加到已被 ZeRO-3 切分的基础权重上，而它们是形状 [0] 的空张量：“The size of "
                    "tensor "
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
                        "Or gather around it: with deepspeed.zero.GatheredParameters(list(model.parameters()))",
                        "或先聚合：with deepspeed.zero.GatheredParameters(list(model.parameters()))",
                    ),
                ),
                spans=(call.place.span(), stage_span(run)),
                confirm=(Text("The model was loaded while ZeRO-3 was on", "模型是在 ZeRO-3 生效时加载的"),),
            )
