from gonogo.hazards.environment._gpu_refusals import find_bf16_or_tf32_refusal, find_cuda_failure, has_cpu_build
from gonogo.hazards.environment._surroundings import (
    find_ampere_gpu,
    find_line_or_error,
    has_ampere_gpu,
    has_pre_ampere_gpu,
    is_outside_training,
    mentions_training,
)
from gonogo.hazards.rule import Certainty, FailureLog, Finding, Findings, Hazard, LineMatch, LoggedError, Pattern, Text

_NO_GPU_PATTERN = Pattern(r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device is detected")


class CudaInitFailedMasquerade(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """An error about bf16 or TF32 after a sign that CUDA failed, or on a GPU with both; else CUDA's own error."""
        refusal, failed = find_bf16_or_tf32_refusal(log), find_cuda_failure(log)
        if refusal is not None and not (has_cpu_build(log) and failed is None):
            old = has_pre_ampere_gpu(log)
            if failed is not None or (has_ampere_gpu(log) and not old):
                also = tuple(one for one in (failed, find_ampere_gpu(log)) if one is not None)
                yield self._build_finding(
                    refusal, self.texts["masquerade"], Certainty.CERTAIN if failed else Certainty.LIKELY, also
                )
            elif not old:
                yield self._build_finding(refusal, self.texts["masquerade"], Certainty.POSSIBLE)
        elif evidence := find_line_or_error(log, self.patterns["cuda_init_error"]):
            sure = mentions_training(log) and not is_outside_training(log)
            yield self._build_finding(
                evidence, self.texts["cuda_init_failed_cause"], Certainty.LIKELY if sure else Certainty.POSSIBLE
            )
        elif evidence := find_line_or_error(log, self.patterns["fp16_refusal"]):
            sure = failed is not None
            yield self._build_finding(
                evidence, self.texts["cuda_init_failed_cause"], Certainty.LIKELY if sure else Certainty.POSSIBLE
            )
        elif evidence := find_line_or_error(log, _NO_GPU_PATTERN):
            yield self._build_finding(evidence, self.texts["cuda_init_failed_cause"], Certainty.POSSIBLE)

    def _build_finding(
        self,
        evidence: LineMatch | LoggedError,
        cause: Text,
        certainty: Certainty,
        extra_evidence: tuple[LineMatch | LoggedError, ...] = (),
    ) -> Finding:
        return self.log_finding(evidence, cause, certainty=certainty, extra_evidence=extra_evidence)
