from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
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
    """CUDA did not start, and the framework blames the GPU's age.
    ## What happens
    On an RTX 4090 or an A100 the run ends with "Your setup doesn't support bf16/gpu" or "--tf32 requires Ampere". Above
    it stands a warning: "CUDA initialization: CUDA unknown error", "Error 802: system not yet initialized", "No
    platform detected". With fp16: "FP16 Mixed precision training with AMP or APEX (`--fp16`) ... can only be used on
    CUDA devices".
    ## Why
    transformers asks CUDA for the GPU's generation. Where CUDA did not start, or no GPU is visible, the answer is no,
    and the message speaks of Ampere. Changing the precision leads to the next failure.
    ## Example
    ```sh
    torchrun --nproc_per_node 8 train.py --bf16 false    # wrong: CUDA did not start, precision is not why
    python -c "import torch; torch.cuda.init()"    # right: says why
    ```
    ## Cure
    Make `torch.cuda.is_available()` true first: driver, fabric manager, container flags, CUDA_VISIBLE_DEVICES, a CUDA
    build of PyTorch. On a machine without a GPU: use_cpu, and no bf16 or TF32.
    ## When it is safe
    Where `torch.cuda.is_available()` prints True in the environment of the run.
    ## Sources
    - https://github.com/gensyn-ai/rl-swarm/issues/252: an RTX 4090 after "CUDA unknown error"
    - https://github.com/gensyn-ai/rl-swarm/issues/148: "No platform detected"
    - https://github.com/FlagOpen/FlagEmbedding/issues/546: fp16 refused, with a driver older than the CUDA of PyTorch
    - https://github.com/hiyouga/LlamaFactory/issues/7888: Error 802 and an accelerator set to CPU
    """

    name = "cuda-init-failed-masquerade"
    title = Text("CUDA did not start: no GPU is usable in this process", "CUDA 没有启动：该进程没有可用的 GPU")
    log_words = (
        "APEX (`--fp16`)",
        "CUDA initialization",
        "No platform detected",
        "UnspecifiedPlatform",
        "CUDA unknown",
        "accelerator to",
        "system not yet init",
    )
    ends_at = (
        ("torch/cuda/__init__.py", "torch._C._cuda_init()"),
        ("transformers/training_args.py", "raise ValueError("),
    )
    yields_to = ("cuda-driver-too-old", "fabric-manager-not-running")

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
        evidence: Found | LoggedError,
        cause: Text,
        certainty: Certainty,
        also: tuple[Found | LoggedError, ...] = (),
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
