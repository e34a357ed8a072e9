from gonogo.hazards.environment._machine import NOT_PREBUILT, compiled_deepspeed_ops
from gonogo.hazards.environment._op_build import FIND_BUILD_ERROR_CURE, find_unexplained_build_failure
from gonogo.hazards.environment._surroundings import find_line_or_error
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Hazard, Run, Severity, translated


class OpBuildNinjaMissing(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """An operator to compile with neither the ninja program nor its package."""
        if not environment.ninja.absent or environment.has("ninja") is not False:
            return
        built = compiled_deepspeed_ops(run)
        if not built:
            return
        names = ", ".join(one.name for one in built)
        yield self.finding(
            self.texts["cause"].format(names=names),
            certainty=Certainty.LIKELY,
            cure=self.cures[:1],
            spans=tuple(one.span for one in built),
            confirm=NOT_PREBUILT.format(names=names),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """PyTorch's error; else, as the least likely cause, an unexplained build that ninja may not have started."""
        if evidence := find_line_or_error(log, self.patterns["ninja_missing"]):
            yield self.log_finding(
                evidence, translated("PyTorch builds extensions with the program ninja, but the process can't find it.")
            )
        elif (evidence := find_unexplained_build_failure(log)) and log.find(self.patterns["ninja_ran"]) is None:
            yield self.log_finding(
                evidence,
                translated("A DeepSpeed operator was not built; if ninja is missing, the build does not even start."),
                certainty=Certainty.POSSIBLE,
                severity=Severity.WARNING,  # the rarest of the causes: listed after the others
                confirm=(
                    FIND_BUILD_ERROR_CURE,
                    translated('If this is the cause, the build error says "Ninja is required".'),
                ),
            )
