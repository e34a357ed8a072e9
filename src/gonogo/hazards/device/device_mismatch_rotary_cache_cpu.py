from gonogo.evidence.log.context import is_under_zero3
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.device._plain_tensors import plain_tensor_finding, plain_tensors_on_cpu
from gonogo.hazards.facts.mismatch_in_log import LoggedDeviceMismatch, MisplacedTensor, device_mismatches_in_training
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Run, Script, Text, translated

# A phrase of users' reports: "the cos and sin tensors, used for rope, were placed on the CPU".


class DeviceMismatchRotaryCacheCpu(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A rotary embedding that computes with a table kept as a plain tensor."""
        for kept in plain_tensors_on_cpu(script, run):
            if kept.is_rotary:
                yield plain_tensor_finding(self, kept)

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch with the CPU in a rotary embedding, or an indexed CPU tensor that no frame places elsewhere."""
        for mismatch in device_mismatches_in_training(log):
            certainty = _judge_certainty(mismatch, log)
            if certainty is not None:
                yield self._build_finding(mismatch.evidence, mismatch.sentence, certainty, mismatch.module)
        if not log.errors and (
            cut := find_truncated_error(log, ("", "apply_rot"), ("", "cos[position_ids]"), max_frames=1)
        ):
            both = translated("The log ends in the rotary embedding")
            yield self._build_finding(cut, both, Certainty.LIKELY if is_under_zero3(log) else Certainty.POSSIBLE, None)

    def _build_finding(
        self, evidence: LoggedError | LineMatch, where: Text, certainty: Certainty, module: str | None
    ) -> Finding:
        return self.log_finding(
            evidence,
            self.texts["cause"].format(mismatch=where),
            certainty=certainty,
            module=module,
            confirm=translated("Print cos.device and position_ids.device before the line that fails"),
        )


def _judge_certainty(mismatch: LoggedDeviceMismatch, log: FailureLog) -> Certainty | None:
    if mismatch.likely_tensor is MisplacedTensor.ROTARY:
        sure = bool(mismatch.frames) and "cpu" in mismatch.devices
        return Certainty.CERTAIN if sure else Certainty.LIKELY
    if mismatch.has_only_devices and mismatch.involves_cpu and is_under_zero3(log):
        return Certainty.POSSIBLE
    return None
