from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.environment._gpu_refusals import cuda_failed, has_cpu_build, refused
from gonogo.hazards.environment._surroundings import (
    ampere_gpu,
    first,
    has_ampere_gpu,
    has_old_gpu,
    is_training,
    outside_training,
)
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Pattern, Text

_RAISED = Pattern(
    r"Unexpected error from cudaGetDeviceCount|CUDA unknown error|CUDA driver initialization failed|Error 80[23]\b"
    r"|Cuda failure (?:802 )?'system not yet initialized'|cudaErrorSystemNotReady"
)
_NO_GPU = Pattern(r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device is detected")
_FP16 = Pattern(
    r"(?:FP16 )?[Mm]ixed precision training with AMP or APEX .*can only be used on CUDA"
    r"|fp16 mixed precision requires a (?:GPU|CUDA)"
)
"""What transformers and accelerate say of fp16 where they see no accelerator."""
_CURE = (
    Text(
        "Check in the very environment of the run: nvidia-smi; python -c 'import torch; print(torch.__version__, "
        "torch.cuda.is_available(), torch.cuda.device_count())'",
        "在运行所用的环境中检查：nvidia-smi；python -c 'import torch; print(torch.__version__, "
        "torch.cuda.is_available(), torch.cuda.device_count())'",
    ),
    Text(
        "Make the GPU visible: a correct CUDA_VISIBLE_DEVICES, docker run --gpus all, a job that asks for GPUs, a CUDA "
        "build of PyTorch",
        "让 GPU 可见：正确的 CUDA_VISIBLE_DEVICES、docker run --gpus all、作业申请了 GPU、CUDA 版的 PyTorch",
    ),
    Text(
        "Mend the driver: reboot (or reload nvidia_uvm) after an update; start nvidia-fabricmanager of the driver's "
        "version on NVSwitch machines (Error 802)",
        "修复驱动：升级后重启（或重新加载 nvidia_uvm）；NVSwitch 机器（Error 802）启动与驱动同版本的 "
        "nvidia-fabricmanager",
    ),
)


class CudaInitFailedMasquerade(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """A refusal of bf16 or TF32 beside a sign that CUDA failed or a GPU that has both; else CUDA's own failure."""
        refusal, failed = refused(log), cuda_failed(log)
        if refusal is not None and not (has_cpu_build(log) and failed is None):
            old = has_old_gpu(log)
            if failed is not None or (has_ampere_gpu(log) and not old):
                also = tuple(one for one in (failed, ampere_gpu(log)) if one is not None)
                yield self._found(refusal, _MASQUERADE, Certainty.CERTAIN if failed else Certainty.LIKELY, also)
            elif not old:
                yield self._found(refusal, _MASQUERADE, Certainty.POSSIBLE)
        elif evidence := first(log, _RAISED):
            sure = is_training(log) and not outside_training(log)
            yield self._found(evidence, _FAILED, Certainty.LIKELY if sure else Certainty.POSSIBLE)
        elif evidence := first(log, _FP16):
            sure = failed is not None
            yield self._found(evidence, _FAILED, Certainty.LIKELY if sure else Certainty.POSSIBLE)
        elif evidence := first(log, _NO_GPU):
            yield self._found(evidence, _FAILED, Certainty.POSSIBLE)

    def _found(
        self,
        evidence: LineMatch | LoggedError,
        cause: Text,
        certainty: Certainty,
        also: tuple[LineMatch | LoggedError, ...] = (),
    ) -> Finding:
        return self.log_finding(
            evidence,
            cause,
            cure=_CURE,
            certainty=certainty,
            also=also,
            confirm=Text(
                "torch.cuda.is_available() prints False in the environment of the run",
                "在运行环境中 torch.cuda.is_available() 为 False",
            ),
        )


_MASQUERADE = Text(
    "bf16 or TF32 is refused since CUDA did not start or no GPU is visible, not since the GPU is too old.",
    "bf16 或 TF32 被拒绝是因为 CUDA 没有启动或看不到 GPU，而不是 GPU 太旧。",
)
_FAILED = Text("CUDA did not start, or no GPU is visible to this process.", "CUDA 没有启动，或该进程看不到 GPU。")
