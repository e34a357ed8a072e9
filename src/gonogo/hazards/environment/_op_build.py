"""Recognizes failed just-in-time builds of DeepSpeed's operators, and whether the log shows the reason."""

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.patterns import Pattern
from gonogo.finding import translated
from gonogo.hazards.environment._surroundings import find_line_or_error

MISMATCH_PATTERN = Pattern(
    r"CUDAMismatchException|Installed CUDA version \S+ does not match the\s+version torch was compiled with"
    r"|The detected CUDA version \(\S+\) mismatches the version that was used to compile"
)
MISMATCH_ACCEPTED_PATTERN = Pattern(
    r"APIs are compatible|accepting this combination|Allowing this combination|DS_SKIP_CUDA_CHECK=1`?:"
)
COMPILE_ERROR_PATTERN = Pattern(
    r"fatal error:|致命错误|nvcc fatal|ptxas fatal|cannot find -l|找不到 -l|\.(?:cu|cuh|cpp|h"
    r"|cc)[:(]\d+[):]?\d*:? error|"
    r"#error|Killed signal terminated program|undefined (?:reference|symbol)"
)
_BUILD_TOOL_MISSING_PATTERN = Pattern(
    r"Ninja is required|ninja not being installed|CUDA_HOME|directory: '?ninja|ninja: command not found"
)
_CONSEQUENCE_PATTERN = Pattern(
    r"has no attribute 'ds_opt_adam'|Error building extension '\w+'"
    r"|/(?:cpu_adam|fused_adam|cpu_adagrad|utils|async_io|cpu_lion|fused_lamb)\.so: cannot open shared object file"
    r"|Command '\['ninja', '-v'(?:, '-j', '\d+')?\]' returned non-zero exit status"
)

FIND_BUILD_ERROR_CURE = translated(
    "Look further up for the build's own first error, or build it alone: python -c \"from "
    'deepspeed.ops.op_builder import CPUAdamBuilder; CPUAdamBuilder().load()"'
)
CLEAR_EXTENSIONS_CURE = translated(
    "Delete the half-built operators before the next run: rm -rf ~/.cache/torch_extensions"
)


def find_unexplained_build_failure(log: FailureLog) -> LineMatch | LoggedError | None:
    """The sign of a failed build in a log that doesn't show the reason; else None."""
    evidence = find_line_or_error(log, _CONSEQUENCE_PATTERN)
    if (
        evidence is None
        or any(find_line_or_error(log, why) for why in (COMPILE_ERROR_PATTERN, _BUILD_TOOL_MISSING_PATTERN))
        or find_cuda_version_mismatch(log)
    ):
        return None
    return evidence


def find_cuda_version_mismatch(log: FailureLog) -> LineMatch | LoggedError | None:
    """The line or exception in which a CUDA toolkit other than PyTorch's is rejected (not just a warning)."""
    for found in log.find_all(MISMATCH_PATTERN):
        if not MISMATCH_ACCEPTED_PATTERN.search(found.text):
            return found
    return next(
        (e for e in log.errors_of(says=MISMATCH_PATTERN) if not MISMATCH_ACCEPTED_PATTERN.search(e.message)), None
    )
