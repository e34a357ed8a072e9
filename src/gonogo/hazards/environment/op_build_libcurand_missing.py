from gonogo.hazards.environment._machine import cpu_adam_needs_cuda, first_compiled_op
from gonogo.hazards.environment._op_build import (
    CLEAR_EXTENSIONS_CURE,
    FIND_BUILD_ERROR_CURE,
    find_unexplained_build_failure,
)
from gonogo.hazards.environment._surroundings import find_line_or_error
from gonogo.hazards.facts.installed import package_version_span
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Hazard, Run, translated

_CURE = (
    translated(
        "Install the toolkit's curand, with headers: conda install -c nvidia libcurand libcurand-dev, or apt install "
        "libcurand-dev-12-1 (the version of nvcc)"
    ),
    translated(
        "If it is installed, let the linker find it: export LIBRARY_PATH=$CUDA_HOME/lib64:$LIBRARY_PATH "
        "LD_LIBRARY_PATH=$CUDA_HOME/lib64:$LD_LIBRARY_PATH"
    ),
    translated(
        "With only PyTorch's own CUDA libraries: cd site-packages/torch/lib && ln -s "
        "../../nvidia/curand/lib/libcurand.so.10 libcurand.so"
    ),
    CLEAR_EXTENSIONS_CURE,
)


class OpBuildLibcurandMissing(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """conda's compiler alone, with a DeepSpeed that links CPUAdam against curand."""
        if environment.has("cuda-nvcc") is not True or any(environment.has(name) for name in _PACKAGES_WITH_CURAND):
            return
        adam = first_compiled_op(run, "cpu_adam")
        links = cpu_adam_needs_cuda(environment)
        if adam is None or links is False:
            return
        yield self.finding(
            self.texts["cause_in_environment"],
            certainty=Certainty.LIKELY if links else Certainty.POSSIBLE,
            cure=_CURE[:2],
            spans=(
                package_version_span(environment, "cuda-nvcc"),
                adam.span,
                package_version_span(environment, "deepspeed"),
            ),
            confirm=FIND_BUILD_ERROR_CURE,
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The linker's or compiler's error; else, less certain, an unexplained build failure."""
        if evidence := find_line_or_error(log, self.patterns["libcurand_missing"]):
            yield self.log_finding(evidence, self.texts["no_library_cause"], cure=_CURE)
        elif evidence := find_line_or_error(log, self.patterns["other_cuda_part"]):
            yield self.log_finding(
                evidence,
                translated("The CUDA toolkit that the operator is built with is incomplete."),
                cure=_CURE,
                certainty=Certainty.POSSIBLE,
                confirm=FIND_BUILD_ERROR_CURE,
            )
        elif evidence := find_unexplained_build_failure(log):
            yield self.log_finding(
                evidence,
                self.texts["unknown_reason_cause"],
                cure=_CURE,
                certainty=Certainty.POSSIBLE,
                confirm=(
                    FIND_BUILD_ERROR_CURE,
                    translated('If this is the cause, the build error says "cannot find -lcurand".'),
                ),
            )


_PACKAGES_WITH_CURAND = ("cuda-toolkit", "cuda", "cuda-libraries-dev", "libcurand-dev", "cudatoolkit-dev", "libcurand")
