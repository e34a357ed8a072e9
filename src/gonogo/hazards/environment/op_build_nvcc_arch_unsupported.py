from gonogo.evidence.environment.compatibility import gpu_architecture
from gonogo.evidence.environment.version_range import parse_version
from gonogo.hazards.environment._machine import compute_capability_of, environment_variable, first_compiled_op
from gonogo.hazards.environment._op_build import (
    CLEAR_EXTENSIONS_CURE,
    FIND_BUILD_ERROR_CURE,
    find_unexplained_build_failure,
)
from gonogo.hazards.environment._surroundings import evidence_text, find_line_or_error
from gonogo.hazards.facts.installed import package_version_span
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Hazard, Pattern, Run, translated

_ARCH_PATTERN = Pattern(r"'?(?:compute|sm)_([\w.]+)'?|CUDA arch \((\d\S*)\)")
_NEW_GPU_PATTERN = Pattern(
    r"\b(?:RTX )?[45]0[6-9]0|\b(?:L40S?|L4|L20|H100|H800|H20|H200|B200)\b|compute_(?:89|90|100|120)"
)
_OLD_TOOLKIT_PATTERN = Pattern(
    r"torch_extensions/py\d+_cu(?:10\d|11[0-7])\b|/cuda-1(?:0|1\.[0-7])\b|\+cu(?:10\d|11[0-7])\b"
)
_CURE = (
    translated(
        "Install a CUDA toolkit whose nvcc supports the GPU (8.9 and 9.0: 11.8 or newer, 10.0 and 12.0: 12.8 or "
        "newer) and point CUDA_HOME and PATH to it, with a PyTorch built for the same CUDA"
    ),
    translated(
        'If the toolkit must stay: export TORCH_CUDA_ARCH_LIST="8.0;8.6+PTX" (the newest that nvcc --list-gpu-arch '
        "names, with +PTX)"
    ),
    CLEAR_EXTENSIONS_CURE,
)


class OpBuildNvccArchUnsupported(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """An nvcc older than the GPU that an operator is compiled for."""
        toolkit = parse_version(environment.toolkit.string or "")
        fused = first_compiled_op(run, "fused_adam", "cpu_adam") if toolkit is not None and environment.gpus else None
        if (
            toolkit is None
            or fused is None
            or not environment_variable(environment, run, "TORCH_CUDA_ARCH_LIST").absent
        ):
            return
        if fused.name == "cpu_adam" and environment.within("deepspeed", "<=0.14.2") is not True:
            return  # newer ones compile it without CUDA
        for gpu in environment.gpus:
            capability = compute_capability_of(gpu)
            known = gpu_architecture(capability) if capability is not None else None
            first_toolkit = parse_version(known.first) if known is not None else None
            if known is None or first_toolkit is None or toolkit >= first_toolkit:
                continue
            yield self.finding(
                self.texts["cause_in_environment"].format(
                    name=fused.name,
                    gpu=gpu.name,
                    arch=f"sm_{known.capability.replace('.', '')}",
                    toolkit=environment.toolkit.string,
                    first=known.first,
                ),
                certainty=Certainty.LIKELY,
                cure=_CURE[:2],
                spans=(fused.span, environment.toolkit.span(), package_version_span(environment, "torch")),
            )
            return

    def in_log(self, log: FailureLog) -> Findings:
        """nvcc's error; else an unexplained build failure with an old toolkit on a new GPU."""
        if evidence := find_line_or_error(log, self.patterns["unsupported_arch"]):
            arch = _ARCH_PATTERN.search(evidence_text(evidence))
            named = next((group for group in arch.groups() if group), "") if arch else ""
            yield self.log_finding(
                evidence,
                translated("nvcc refuses to compile for {arch}: the CUDA toolkit is older than the GPU.").format(
                    arch=_to_nvcc_arch(named.strip("'."))
                ),
                cure=_CURE,
            )
        elif evidence := find_unexplained_build_failure(log):
            old = log.find(_NEW_GPU_PATTERN) is not None and log.find(_OLD_TOOLKIT_PATTERN) is not None
            yield self.log_finding(
                evidence,
                cure=_CURE,
                certainty=Certainty.LIKELY if old else Certainty.POSSIBLE,
                confirm=(
                    FIND_BUILD_ERROR_CURE,
                    translated('If this is the cause, the build error says "Unsupported gpu architecture".'),
                ),
            )


def _to_nvcc_arch(arch: str) -> str:
    """``sm_89``, as nvcc names it, for ``89`` or ``8.9``."""
    return f"sm_{arch.replace('.', '')}" if arch else "GPU"
