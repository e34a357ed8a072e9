from gonogo.hazards.environment._machine import flash_attention_request, weakest_gpu
from gonogo.hazards.environment._surroundings import find_line_or_error, find_pre_ampere_gpu, is_outside_training
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Hazard, Pattern, Run, translated

_SGLANG_REFUSAL_PATTERN = Pattern(r"flash_attn at sgl-kernel is only supported on sm\d+")


class FlashAttnUnsupportedGpu(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """flash-attn requested on GPUs older than Ampere."""
        found = weakest_gpu(environment)
        if found is None or found[1] >= (8, 0):
            return
        requested = flash_attention_request(run)
        if requested is None:
            return
        gpu, (major, minor) = found
        yield self.finding(
            self.texts["cause_in_environment"].format(gpu=gpu.name, capability=f"{major}.{minor}"),
            cure=self.cures[:1],
            spans=requested.span(),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """flash-attn's own error, which has a single cause."""
        evidence = find_line_or_error(log, self.patterns["unsupported_gpu"])
        if evidence is None:
            if sglang := find_line_or_error(log, _SGLANG_REFUSAL_PATTERN):
                yield self.log_finding(
                    sglang,
                    cure=self.texts["sglang_cure"],
                    certainty=Certainty.LIKELY,
                    confirm=translated("torch.cuda.get_device_capability() is neither (9, 0) nor (8, …)"),
                )
            return
        old = find_pre_ampere_gpu(log)
        yield self.log_finding(
            evidence,
            translated("flash-attn is used on a GPU older than Ampere, for which it has no kernels."),
            certainty=Certainty.POSSIBLE if is_outside_training(log) else Certainty.CERTAIN,
            extra_evidence=(old,) if old else (),
            confirm=translated('The run ends with "FlashAttention only supports Ampere GPUs or newer"'),
        )
