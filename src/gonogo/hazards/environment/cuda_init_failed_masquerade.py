from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.environment._gpu_refusals import find_cuda_failure, has_cpu_build, refused
from gonogo.hazards.environment._surroundings import (
    ampere_gpu,
    first,
    has_ampere_gpu,
    has_old_gpu,
    is_training,
    outside_training,
)
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Pattern, Text, translated

_CUDA_INIT_ERROR_PATTERN = Pattern(
    r"Unexpected error from cudaGetDeviceCount|CUDA unknown error|CUDA driver initialization failed|Error 80[23]\b"
    r"|Cuda failure (?:802 )?'system not yet initialized'|cudaErrorSystemNotReady"
)
_NO_GPU = Pattern(r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device is detected")
_FP16_REFUSAL_PATTERN = Pattern(
    r"(?:FP16 )?[Mm]ixed precision training with AMP or APEX .*can only be used on CUDA"
    r"|fp16 mixed precision requires a (?:GPU|CUDA)"
)
"""The errors of transformers and accelerate about fp16 if they see no accelerator."""
_CURE = (
    translated(
        "Check in the run's own environment: nvidia-smi; python -c 'import torch; print(torch.__version__, "
        "torch.cuda.is_available(), torch.cuda.device_count())'"
    ),
    translated(
        "Make the GPU visible: a correct CUDA_VISIBLE_DEVICES, docker run --gpus all, a job that requests GPUs, "
        "a CUDA build of PyTorch"
    ),
    translated(
        "Fix the driver: reboot (or reload nvidia_uvm) after an update; start the nvidia-fabricmanager that "
        "matches the driver's version on NVSwitch machines (Error 802)"
    ),
)


class CudaInitFailedMasquerade(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """An error about bf16 or TF32 after a sign that CUDA failed, or on a GPU with both; else CUDA's own error."""
        refusal, failed = refused(log), find_cuda_failure(log)
        if refusal is not None and not (has_cpu_build(log) and failed is None):
            old = has_old_gpu(log)
            if failed is not None or (has_ampere_gpu(log) and not old):
                also = tuple(one for one in (failed, ampere_gpu(log)) if one is not None)
                yield self._found(refusal, _MASQUERADE, Certainty.CERTAIN if failed else Certainty.LIKELY, also)
            elif not old:
                yield self._found(refusal, _MASQUERADE, Certainty.POSSIBLE)
        elif evidence := first(log, _CUDA_INIT_ERROR_PATTERN):
            sure = is_training(log) and not outside_training(log)
            yield self._found(evidence, _CUDA_INIT_FAILED_CAUSE, Certainty.LIKELY if sure else Certainty.POSSIBLE)
        elif evidence := first(log, _FP16_REFUSAL_PATTERN):
            sure = failed is not None
            yield self._found(evidence, _CUDA_INIT_FAILED_CAUSE, Certainty.LIKELY if sure else Certainty.POSSIBLE)
        elif evidence := first(log, _NO_GPU):
            yield self._found(evidence, _CUDA_INIT_FAILED_CAUSE, Certainty.POSSIBLE)

    def _found(
        self,
        evidence: LineMatch | LoggedError,
        cause: Text,
        certainty: Certainty,
        extra_evidence: tuple[LineMatch | LoggedError, ...] = (),
    ) -> Finding:
        return self.log_finding(
            evidence,
            cause,
            cure=_CURE,
            certainty=certainty,
            extra_evidence=extra_evidence,
            confirm=translated("torch.cuda.is_available() prints False in the environment of the run"),
        )


_MASQUERADE = translated(
    "bf16 or TF32 is refused because CUDA failed to initialize or no GPU is visible, not because the GPU is too old."
)
_CUDA_INIT_FAILED_CAUSE = translated("CUDA failed to initialize, or no GPU is visible to this process.")
