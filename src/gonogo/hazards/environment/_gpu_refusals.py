"""Errors by which frameworks reject bf16 or TF32, and signs that they saw no GPU at all."""

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.patterns import Pattern
from gonogo.hazards.environment._surroundings import find_line_or_error

REFUSED_PATTERN = Pattern(
    r"setup doesn'?t support bf16|--tf32 requires Ampere|bf16 mixed precision requires PyTorch"
    r"|CUDA [Dd]evice does(?:n't| not) support \W?bfloat16"
    r"|Type bf16 is not supported|bf16 precision was requested but not available"
    r"|device does not support `?pure_bf16|bf16 (?:is|was) not supported (?:on|by) (?:this|your|the)"
    r"|(?:GPU|gpu|device)s? (?:does not|doesn't|do not) support (?:bf16|bfloat16|BF16)"
    r"|(?:bf16|[Bb]float16) is only supported on (?:GPU|gpu|CUDA|device|Ampere)"
)
"""bf16 or TF32 rejected because the GPU does not support it, or because no GPU is visible."""

CUDA_FAILURE_PATTERN = Pattern(
    r"CUDA initialization: (?:CUDA unknown error|Unexpected error|Found no NVIDIA driver"
    r"|CUDA driver initialization failed)"
    r"|CUDA unknown error - this may be due to|Unexpected error from cudaGetDeviceCount"
    r"|(?:Can't|Failed to) initialize NVML|Setting (?:ds_)?accelerator to (?:CPU|cpu)\b"
    r"|CUDA driver initialization failed"
    r"|No platform detected|UnspecifiedPlatform|No CUDA GPUs are available|Found no NVIDIA driver"
    r"|no CUDA-capable device|Error 80[234]\b|NVIDIA-SMI has failed|Driver/library version mismatch"
    r"|cuda\.is_available\(\)[^\n]{0,20}False|CUDA(?: is)? [Aa]vailable\W{1,3}False|cuda is not available"
)
"""CUDA did not start in this process, or no GPU is visible to it."""

CPU_BUILD_PATTERN = Pattern(
    r"Torch not compiled with CUDA enabled|\btorch\S{0,12}\d\.\d+\.\d+\+cpu\b"
    r"|[Pp]y[Tt]orch [Vv]ersion.{0,20}\+cpu\b|cpuonly"
)
"""This PyTorch was built without CUDA."""


def find_bf16_or_tf32_refusal(log: FailureLog) -> LineMatch | LoggedError | None:
    """The line or exception that rejects bf16 or TF32."""
    return find_line_or_error(log, REFUSED_PATTERN)


def find_cuda_failure(log: FailureLog) -> LineMatch | LoggedError | None:
    """The line or exception that shows that CUDA failed to initialize or no GPU is visible."""
    return find_line_or_error(log, CUDA_FAILURE_PATTERN)


def has_cpu_build(log: FailureLog) -> bool:
    """True if PyTorch is a build without CUDA."""
    return "+cpu" in log.setup.version_texts.get("torch", "") or find_line_or_error(log, CPU_BUILD_PATTERN) is not None
