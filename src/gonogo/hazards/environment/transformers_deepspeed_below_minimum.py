from gonogo.hazards.rule import Environment, Findings, Run
from gonogo.hazards.version_rule import BelowMinimum


class TransformersDeepspeedBelowMinimum(BelowMinimum):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """DeepSpeed below the lowest version that this transformers takes, unless the run does without it."""
        if run.deepspeed_on is not False:
            yield from super().in_environment(environment, run)
