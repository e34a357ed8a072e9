from gonogo.hazards.post_training._generation_batch import is_grpo
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run


class GrpoBatchSetTwice(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """generation_batch_size and steps_per_generation both set in a GRPO run."""
        both = [run.arguments.get(name) for name in ("generation_batch_size", "steps_per_generation")]
        if not all(field.known and field.value is not None for field in both) or not is_grpo(launch, run):
            return
        yield self.finding(
            self.cause,
            certainty=Certainty.LIKELY if run.framework == "ms-swift" else Certainty.CERTAIN,
            spans=tuple(field.span() for field in both),
        )
