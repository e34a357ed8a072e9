from gonogo.hazards.environment._gpu_refusals import find_bf16_or_tf32_refusal, find_cuda_failure, has_cpu_build
from gonogo.hazards.environment._machine import weakest_gpu
from gonogo.hazards.environment._surroundings import (
    find_line_or_error,
    find_pre_ampere_gpu,
    has_ampere_gpu,
    has_pre_ampere_gpu,
    is_outside_training,
)
from gonogo.hazards.facts.training_framework import uses_trainer
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Field, Findings, Hazard, Pattern, Run, translated

_CUBLAS_BF16_PATTERN = Pattern(r"CUBLAS_STATUS_NOT_SUPPORTED when calling .*CUDA_R_16BF")


class Bf16Tf32UnsupportedGpu(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """bf16 or TF32 requested on GPUs older than Ampere."""
        found = weakest_gpu(environment)
        if found is None or found[1] >= (8, 0):
            return
        gpu, (major, minor) = found
        tf32, bf16 = run.arguments.get("tf32"), _bf16_request(run)
        requested, what = (tf32, "TF32") if tf32.truth else (bf16, "bf16")
        if requested is None or not requested.truth:
            return
        sure = what == "TF32" and bool(uses_trainer(run))
        yield self.finding(
            self.texts["cause_in_environment"].format(what=what, gpu=gpu.name, capability=f"{major}.{minor}"),
            certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
            cure=(*(self.cures[:1] if bf16 is not None else ()), *(self.cures[1:2] if tf32.truth else ())),
            spans=(
                requested.span(),
                bf16.span() if bf16 is not None and bf16 is not requested and bf16.truth else None,
            ),
            confirm=self.texts["capability_confirm"],
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The error about bf16 or TF32, unless its context shows that CUDA failed to initialize."""
        evidence = find_bf16_or_tf32_refusal(log)
        old = has_pre_ampere_gpu(log)
        if evidence is None:
            evidence = find_line_or_error(log, _CUBLAS_BF16_PATTERN)
            if evidence is not None:
                yield self.log_finding(
                    evidence,
                    translated("cuBLAS refuses a bf16 matrix product: GPUs older than Ampere don't support it."),
                    certainty=Certainty.LIKELY if old else Certainty.POSSIBLE,
                    confirm=self.texts["capability_confirm"],
                )
            return
        cpu_build = has_cpu_build(log)
        if old or cpu_build:
            certainty = Certainty.CERTAIN
        elif find_cuda_failure(log) or has_ampere_gpu(log) or is_outside_training(log):
            certainty = Certainty.POSSIBLE
        else:
            certainty = Certainty.LIKELY
        cause = (
            translated("This PyTorch was built without CUDA, so it has no bf16 or TF32 on a GPU.")
            if cpu_build and not old
            else self.texts["cause_in_log"]
        )
        built_for_cpu = cpu_build and not old
        yield self.log_finding(
            evidence,
            cause,
            cure=(self.texts["cuda_build_cure"], self.cures[2]) if built_for_cpu else self.cures,
            certainty=certainty,
            extra_evidence=(named,) if (named := find_pre_ampere_gpu(log)) else (),
            confirm=() if built_for_cpu else (self.texts["capability_confirm"],),
        )


def _bf16_request(run: Run) -> Field | None:
    """The setting that enables bf16: in the DeepSpeed config as written, else among the arguments."""
    if run.config is not None and run.config.raw("bf16", "enabled").truth:
        return run.config.raw("bf16", "enabled")
    given = run.arguments.get("bf16")
    return given if given.truth else None
