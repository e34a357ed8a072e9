from gonogo.evidence.log.context import under_zero3
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.truncated_traceback import cut_in
from gonogo.hazards.device._plain_tensors import kept_finding, kept_on_cpu
from gonogo.hazards.facts.mismatch_in_log import LoggedMismatch, Owner, mismatches_in
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Run, Script, Text

# A reporter's own words: "the cos and sin tensors, used for rope, were placed on the CPU".


class DeviceMismatchRotaryCacheCpu(Hazard):
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

    def _finding(
        self, evidence: LoggedError | LineMatch, where: Text, certainty: Certainty, module: str | None
    ) -> Finding:
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
