from gonogo.hazards.facts.installed import (
    certainty_of_package_versions,
    describe_package,
    package_version_span,
    version_fixes,
)
from gonogo.hazards.rule import Environment, Findings, LoggedHazard, Run, translated


class Fsdp2TorchTooOld(LoggedHazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """accelerate's fsdp_version: 2 and a torch before 2.6."""
        if run.accelerate is None or run.accelerate.distributed_type.value != "FSDP":
            return
        version = run.accelerate.get("fsdp_config", "fsdp_version")
        if str(version.get("")) != "2" or not environment.within("torch", "<2.6"):
            return
        yield self.finding(
            translated("fsdp_version is 2, but {torch} is older than the 2.6 it needs.").format(
                torch=describe_package(environment, "torch")
            ),
            certainty=certainty_of_package_versions(environment, run, "torch"),
            spans=(package_version_span(environment, "torch"), version.span()),
            fixes=version_fixes(environment, "torch", ">=2.6"),
        )
