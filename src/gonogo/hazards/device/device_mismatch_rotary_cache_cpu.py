"""device-mismatch-rotary-cache-cpu."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.evidence.log.context import outside_training, under_zero3
from gonogo.evidence.log.cut import cut_in
from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.device._plain_tensors import kept_on_cpu
from gonogo.hazards.facts.mismatch_in_log import LoggedMismatch, Owner, mismatches_in
from gonogo.hazards.hazard import Hazard

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import Script

# A reporter's own words: "the cos and sin tensors, used for rope, were placed on the CPU".
_SAID = Pattern(
    r"(?i)\b(?:cos\b.{0,12}\bsin|sin\b.{0,12}\bcos|cos_cached|sin_cached|inv_freq|rotary|rope)\b.{0,80}"
    r"\b(?:is|are|was|were|stays?|stayed|remains?|left|still|placed|on|在)\b.{0,12}\bcpu\b"
)
# Code of another indexing, pasted beside the message.
_INDEXES_ELSEWHERE = Pattern(r"[\w)]\[\w*(?:label|target|mask|idx|ind)\w*\]")


class RotaryCacheOnCpu(Hazard):
    """The cos/sin cache of the rotary embedding is on the CPU while queries and keys are on the GPU.

    ## What happens
    The first forward ends in `apply_rotary_pos_emb`: "indices should be either on cpu or on the same device as the
    indexed tensor (cpu)" at `cos[position_ids]`, or "found at least two devices, cuda:0 and cpu!" at `q * cos`.

    ## Why
    `cos_cached` and `sin_cached` are computed from `inv_freq` when the model is built, or at the first longer sequence.
    Where they are plain attributes, or non-persistent buffers that ZeRO-3, CPU offload or a patch (long context, a
    replaced attention) leaves behind, no `to(device)` reaches them. ZeRO-3 moves only parameters.

    ## Cure
    Upgrade transformers (since 4.45 the common models compute cos and sin in every forward on the input's device),
    or the model's remote code. Where the version must stay: `cos, sin = cos.to(q.device), sin.to(q.device)` before the
    indexing, or register both with `register_buffer(..., persistent=False)` and move the model after it.

    ## When it is safe
    Models whose rotary embedding computes its values in the forward from `position_ids.device`.

    ## Sources
    - https://github.com/huggingface/transformers/issues/32312: Qwen2 under ZeRO-3, `cos[position_ids]`
    - https://github.com/OptimalScale/LMFlow/issues/465: Llama under ZeRO-3
    - https://github.com/hiyouga/LlamaFactory/issues/2493: Qwen-7B's remote code with ZeRO-3 and offload
    """

    page_zh = """旋转位置编码的 cos/sin 缓存在 CPU，而 query 与 key 在 GPU。

    ## 现象
    第一次前向在 `apply_rotary_pos_emb` 中失败：`cos[position_ids]` 处报 “indices should be either on cpu or on the same
    device as the indexed tensor (cpu)”，或 `q * cos` 处报 “found at least two devices, cuda:0 and cpu!”。

    ## 原因
    `cos_cached` 与 `sin_cached` 在构建模型时（或遇到更长序列时）由 `inv_freq` 计算。若它们只是普通属性，或是被 ZeRO-3、
    CPU 卸载、补丁（长上下文、替换的注意力）遗漏的非持久 buffer，则任何 `to(device)` 都搬不到它们。ZeRO-3 只搬运参数。

    ## 解决办法
    升级 transformers（4.45 起常见模型在每次前向时于输入所在设备计算 cos 与 sin），或更新模型的远程代码。版本不能变时：
    在索引之前加 `cos, sin = cos.to(q.device), sin.to(q.device)`；或用 `register_buffer(..., persistent=False)`
    注册二者，之后再移动模型。

    ## 何时安全
    旋转编码在 forward 中根据 `position_ids.device` 计算的模型。

    ## 来源
    - https://github.com/huggingface/transformers/issues/32312：ZeRO-3 下的 Qwen2，`cos[position_ids]`
    - https://github.com/OptimalScale/LMFlow/issues/465：ZeRO-3 下的 Llama
    - https://github.com/hiyouga/LlamaFactory/issues/2493：Qwen-7B 远程代码，ZeRO-3 加卸载
    """

    name = "device-mismatch-rotary-cache-cpu"
    title = Text(
        en="The rotary embedding's cos/sin cache is on the CPU",
        zh="旋转位置编码的 cos/sin 缓存位于 CPU",
    )
    sources = (
        "https://github.com/huggingface/transformers/issues/32312",
        "https://github.com/OptimalScale/LMFlow/issues/465",
        "https://github.com/hiyouga/LlamaFactory/issues/2493",
    )
    log_words = (
        "Expected all tensors to be on the same device",
        "indices should be either on cpu",
        "rotary",
        "inv_freq",
    )
    yields_to = ("dataparallel-plain-python-multi-gpu", "device-mismatch-multimodal-submodule")

    def in_script(self, script: Script, run: Run) -> Iterator[Finding]:
        """A rotary embedding that keeps its table as a plain tensor, and computes with it."""
        for kept in kept_on_cpu(script, run):
            if kept.is_rotary:
                edit = kept.registering()
                yield self.finding(
                    kept.told,
                    certainty=Certainty.LIKELY,
                    cure=(
                        Text(
                            f'In __init__: self.register_buffer("{kept.name}", ..., persistent=False)',
                            f'在 __init__ 中：self.register_buffer("{kept.name}", ..., persistent=False)',
                        ),
                        Text(
                            f"Or move it where it is used: self.{kept.name}.to(x.device)",
                            f"或在使用处搬运：self.{kept.name}.to(x.device)",
                        ),
                    ),
                    spans=(
                        script.place(kept.statement).span(),
                        script.place(kept.use).span(Text("used here", "在此处使用")),
                    ),
                    fixes=(self.fix(Text("Make it a buffer", "改为 buffer"), edit, safe=False),) if edit else (),
                )

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
        """A mismatch with the CPU in a rotary embedding; an indexing of a CPU tensor that no frame places elsewhere."""
        told = False
        for mismatch in mismatches_in(log):
            certainty = _certainty(mismatch, log)
            if certainty is not None:
                told = told or certainty is not Certainty.POSSIBLE
                yield self._finding(mismatch.evidence, mismatch.told, certainty, mismatch.module)
        if not log.errors and (cut := cut_in(log, ("", "apply_rot"), ("", "cos[position_ids]"), within=1)):
            told = True
            both = Text("The log breaks off in the rotary embedding", "日志在旋转位置编码处中断")
            yield self._finding(cut, both, Certainty.LIKELY if under_zero3(log) else Certainty.POSSIBLE, None)
        if not told and not outside_training(log) and (line := log.find(_SAID)):
            both = Text("The log tells of both devices", "日志提到了两种设备")
            yield self._finding(line, both, Certainty.LIKELY, None)

    def _finding(self, evidence: LoggedError | Found, told: Text, certainty: Certainty, module: str | None) -> Finding:
        return self.log_finding(
            evidence,
            Text(
                en="{told}. The rotary embedding's cos and sin (or inv_freq, which they come from) stayed on the CPU.",
                zh="{told}。旋转位置编码的 cos、sin（或计算它们的 inv_freq）留在了 CPU。",
            ).format(told=told),
            cure=(
                Text(
                    en="Upgrade transformers (pip install -U transformers), or the model's remote code: newer ones "
                    "compute cos and sin on the input's device",
                    zh="升级 transformers（pip install -U transformers）或模型的远程代码：新版本在输入所在设备上"
                    "计算 cos 与 sin",
                ),
                Text(
                    en="Or, in the model's code before the line that fails: "
                    "cos, sin = cos.to(q.device), sin.to(q.device)",
                    zh="或在模型代码出错行之前加：cos, sin = cos.to(q.device), sin.to(q.device)",
                ),
                Text(
                    en="Do not move or offload the model, nor replace its attention, after deepspeed.initialize; "
                    "register the cache with register_buffer",
                    zh="deepspeed.initialize 之后不要再移动、卸载模型或替换注意力；缓存请用 register_buffer 注册",
                ),
            ),
            certainty=certainty,
            module=module,
            confirm=(
                Text(
                    en="Print cos.device and position_ids.device before the line that fails",
                    zh="在出错行之前打印 cos.device 与 position_ids.device",
                ),
            ),
        )


def _certainty(mismatch: LoggedMismatch, log: FailureLog) -> Certainty | None:
    if mismatch.owner is Owner.ROTARY:
        sure = bool(mismatch.frames) and "cpu" in mismatch.devices
        if not mismatch.frames and log.find(_INDEXES_ELSEWHERE) is not None:
            return None
        return Certainty.CERTAIN if sure else Certainty.LIKELY
    if mismatch.bare and mismatch.with_host and under_zero3(log):
        return Certainty.POSSIBLE
    return None
