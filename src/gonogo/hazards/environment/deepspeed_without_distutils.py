from gonogo.evidence.environment.version_range import parse_version
from gonogo.hazards.facts.installed import (
    are_declared_in_files,
    certainty_of_package_versions,
    describe_package,
    is_complete_training_environment,
    package_version_span,
)
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run


class DeepspeedWithoutDistutils(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Python 3.12, DeepSpeed up to 0.18.3, and a complete listing without setuptools."""
        python = parse_version(environment.python.string or "")
        if python is None or python.release[:2] < (3, 12) or not is_complete_training_environment(environment):
            return
        if environment.has("setuptools") or not environment.within("deepspeed", "<=0.18.3"):
            return
        sure = are_declared_in_files(environment, "deepspeed")
        yield self.finding(
            self.texts["cause"].format(deepspeed=describe_package(environment, "deepspeed"), python=python),
            certainty=certainty_of_package_versions(environment, run, "deepspeed") if sure else Certainty.POSSIBLE,
            spans=(package_version_span(environment, "deepspeed"), environment.python.span()),
        )
