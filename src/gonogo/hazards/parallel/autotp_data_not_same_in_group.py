from gonogo.hazards.facts.installed import describe_package, package_version_span
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, LoggedHazard, Run


class AutotpDataNotSameInGroup(LoggedHazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """AutoTP for training with an accelerate version that doesn't support it."""
        size = config.raw("tensor_parallel", "autotp_size")
        if size.number is None or size.number < 2 or not run.environment.within("accelerate", "<1.6"):
            return
        yield self.finding(
            self.texts["cause"].format(
                size=int(size.number), accelerate=describe_package(run.environment, "accelerate")
            ),
            certainty=Certainty.LIKELY,
            cure=self.cures[:1],
            spans=(size.span(), package_version_span(run.environment, "accelerate")),
        )
