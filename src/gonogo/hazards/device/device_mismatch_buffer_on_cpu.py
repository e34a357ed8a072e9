import re

from gonogo.evidence.patterns import lazy_compile
from gonogo.hazards.device._plain_tensors import plain_tensor_finding, plain_tensors_on_cpu
from gonogo.hazards.facts.mismatch_in_log import (
    LoggedDeviceMismatch,
    MisplacedTensor,
    code_without_targets,
    device_mismatches_in_training,
)
from gonogo.hazards.rule import Certainty, FailureLog, Finding, Findings, Hazard, Run, Script, translated

# Phrases of users' reports: "self.pos_embed (a buffer) stays on CPU", "x is on cuda, pos_embed is on cpu".
_ATTRIBUTE_NAME_PATTERN = lazy_compile(r"\bself\.(\w+)(?![\w(])|\b(pos_?embed\w*)\b", re.IGNORECASE)
_BUFFER_NAME_PATTERN = lazy_compile(r"pos|cache|mask|freq|running|relative|alibi|codebook|mel|window", re.IGNORECASE)


class DeviceMismatchBufferOnCpu(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A module that computes with a tensor it keeps as a plain attribute, not a buffer."""
        for kept in plain_tensors_on_cpu(script, run):
            if not kept.is_rotary:
                yield plain_tensor_finding(self, kept)

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch with the CPU at a line of the model's code that uses what is, or should be, a buffer."""
        for mismatch in device_mismatches_in_training(log):
            if mismatch.likely_tensor is MisplacedTensor.BUFFER:
                yield self._build_finding(mismatch, _buffer_name(mismatch))

    def _build_finding(self, mismatch: LoggedDeviceMismatch, name: str | None) -> Finding:
        return self.log_finding(
            mismatch.evidence,
            translated("{mismatch}. The line uses {name}, which was not moved to the GPU with the model.").format(
                mismatch=mismatch.sentence, name=name or translated("a tensor kept by the module")
            ),
            cure=(
                translated("Update the model's (remote) code: newer versions move this buffer to the input's device"),
                translated("Or move it where it is used: {name}.to(device=x.device, dtype=x.dtype)").format(
                    name=name or "buffer"
                ),
                self.texts["cure"],
            ),
            certainty=Certainty.LIKELY if name and _BUFFER_NAME_PATTERN.search(name) else Certainty.POSSIBLE,
            module=mismatch.module,
            parameter=name,
            confirm=translated("Print the device of every tensor on the line that fails"),
        )


def _buffer_name(mismatch: LoggedDeviceMismatch) -> str | None:
    caller = mismatch.caller
    if caller is None:
        return None
    names = [
        found.group(1) or found.group(2) for found in _ATTRIBUTE_NAME_PATTERN.finditer(code_without_targets(caller))
    ]
    likely = [name for name in names if _BUFFER_NAME_PATTERN.search(name)]
    return next(iter((*likely, *names)), None)
