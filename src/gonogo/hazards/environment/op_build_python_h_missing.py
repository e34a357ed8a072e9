from gonogo.hazards.environment._machine import NOT_PREBUILT, compiled_deepspeed_ops
from gonogo.hazards.environment._op_build import (
    CLEAR_EXTENSIONS_CURE,
    FIND_BUILD_ERROR_CURE,
    find_unexplained_build_failure,
)
from gonogo.hazards.environment._surroundings import find_line_or_error
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Hazard, Run, translated

_CURE = (
    translated(
        "Install the headers of the Python that runs the program: apt install python3.10-dev (dnf install "
        "python3-devel), matching its version"
    ),
    translated("Or use a conda or uv Python, which includes its headers"),
    CLEAR_EXTENSIONS_CURE,
)


class OpBuildPythonHMissing(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """An operator to compile on a machine without Python's headers."""
        built = compiled_deepspeed_ops(run) if environment.python_headers.absent else ()
        if not built:
            return
        names = ", ".join(one.name for one in built)
        yield self.finding(
            self.texts["cause_in_environment"].format(names=names),
            certainty=Certainty.LIKELY,
            cure=_CURE[:2],
            spans=tuple(one.span for one in built),
            confirm=NOT_PREBUILT.format(names=names),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The compiler's error; else, less certain, an unexplained build failure."""
        if evidence := find_line_or_error(log, self.patterns["python_header_missing"]):
            yield self.log_finding(
                evidence,
                translated("The compiler can't find Python.h: the development files of this Python are not installed."),
                cure=_CURE,
            )
        elif evidence := find_unexplained_build_failure(log):
            yield self.log_finding(
                evidence,
                cure=_CURE,
                certainty=Certainty.POSSIBLE,
                confirm=(
                    FIND_BUILD_ERROR_CURE,
                    translated('If this is the cause, the build error mentions "Python.h".'),
                ),
            )
