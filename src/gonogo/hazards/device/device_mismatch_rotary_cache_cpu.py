from gonogo.evidence.log.context import under_zero3
from gonogo.evidence.log.cut import cut_in
from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.hazards.device._plain_tensors import kept_finding, kept_on_cpu
from gonogo.hazards.facts.mismatch_in_log import LoggedMismatch, Owner, mismatches_in
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Run, Script, Text

# A reporter's own words: "the cos and sin tensors, used for rope, were placed on the CPU".


class DeviceMismatchRotaryCacheCpu(Hazard):
    """The cos/sin cache of the rotary embedding is on the CPU while queries and keys are on the GPU.
    ## What happens
    The first forward ends in `apply_rotary_pos_emb`: "indices should be either on cpu or on the same device as the
    indexed tensor (cpu)" at `cos[position_ids]`, or "found at least two devices, cuda:0 and cpu!" at `q * cos`.
    ## Why
    `cos_cached` and `sin_cached` are computed from `inv_freq` when the model is built, or at the first longer sequence.
    Where they are plain attributes, or non-persistent buffers that ZeRO-3, CPU offload or a patch (long context, a
    replaced attention) leaves behind, no `to(device)` reaches them. ZeRO-3 moves only parameters.
    ## Example
    ```python
    self.inv_freq = 1 / base ** (steps / dim)                                               # wrong: stays on the CPU
    self.register_buffer("inv_freq", 1 / base ** (steps / dim), persistent=False)           # right: moves along
    ```
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

    name = "device-mismatch-rotary-cache-cpu"
    title = Text("The rotary embedding's cos/sin cache is on the CPU", "旋转位置编码的 cos/sin 缓存位于 CPU")
    log_words = (
        "Expected all tensors to be on the same device",
        "indices should be either on cpu",
        "rotary",
        "inv_freq",
    )
    ends_at = (
        ("transformers/models/", "cos[position_ids]"),
        ("transformers/models/", "apply_rotary_pos_emb"),
        ("transformers/models/", "inv_freq_expanded"),
    )
    traces = ("cos[position_ids].unsqueeze(",)
    yields_to = ("dataparallel-plain-python-multi-gpu", "device-mismatch-multimodal-submodule")

    def in_script(self, script: Script, run: Run) -> Findings:
        """A rotary embedding that keeps its table as a plain tensor, and computes with it."""
        for kept in kept_on_cpu(script, run):
            if kept.is_rotary:
                yield kept_finding(self, kept)

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch with the CPU in a rotary embedding; an indexing of a CPU tensor that no frame places elsewhere."""
        for mismatch in mismatches_in(log):
            certainty = _certainty(mismatch, log)
            if certainty is not None:
                yield self._finding(mismatch.evidence, mismatch.sentence, certainty, mismatch.module)
        if not log.errors and (cut := cut_in(log, ("", "apply_rot"), ("", "cos[position_ids]"), within=1)):
            both = Text("The log breaks off in the rotary embedding", "日志在旋转位置编码处中断")
            yield self._finding(cut, both, Certainty.LIKELY if under_zero3(log) else Certainty.POSSIBLE, None)

    def _finding(self, evidence: LoggedError | Found, where: Text, certainty: Certainty, module: str | None) -> Finding:
        return self.log_finding(
            evidence,
            Text(
                "{mismatch}. The rotary embedding's cos and sin (or inv_freq, which they come from) stayed on the CPU.",
                "{mismatch}。旋转位置编码的 cos、sin（或计算它们的 inv_freq）留在了 CPU。",
            ).format(mismatch=where),
            cure=(
                Text(
                    "Upgrade transformers (pip install -U transformers), or the model's remote code: newer ones "
                    "compute cos and sin on the input's device",
                    "升级 transformers（pip install -U transformers）或模型的远程代码：新版本在输入所在设备上计算 cos "
                    "与 sin",
                ),
                Text(
                    "Or, in the model's code before the line that fails: cos, sin = cos.to(q.device), sin.to(q.device)",
                    "或在模型代码出错行之前加：cos, sin = cos.to(q.device), sin.to(q.device)",
                ),
                Text(
                    "Do not move or offload the model, nor replace its attention, after deepspeed.initialize; register "
                    "the cache with register_buffer",
                    "deepspeed.initialize 之后不要再移动、卸载模型或替换注意力；缓存请用 register_buffer 注册",
                ),
            ),
            certainty=certainty,
            module=module,
            confirm=Text(
                "Print cos.device and position_ids.device before the line that fails",
                "在出错行之前打印 cos.device 与 position_ids.device",
            ),
        )


def _certainty(mismatch: LoggedMismatch, log: FailureLog) -> Certainty | None:
    if mismatch.owner is Owner.ROTARY:
        sure = bool(mismatch.frames) and "cpu" in mismatch.devices
        return Certainty.CERTAIN if sure else Certainty.LIKELY
    if mismatch.bare and mismatch.with_host and under_zero3(log):
        return Certainty.POSSIBLE
    return None
