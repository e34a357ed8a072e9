from gonogo.hazards.rule import Environment, Findings, Run
from gonogo.hazards.version_rule import BelowMinimumVersion


class TransformersDeepspeedBelowMinimum(BelowMinimumVersion):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A DeepSpeed below the minimum version of this transformers, unless the run doesn't use it."""
        if run.uses_deepspeed is not False:
            yield from super().in_environment(environment, run)
