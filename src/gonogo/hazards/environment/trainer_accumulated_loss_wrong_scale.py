from gonogo.hazards.facts.training_framework import uses_trainer
from gonogo.hazards.rule import Run
from gonogo.hazards.version_rule import IncompatibleVersions, VersionContext


class TrainerAccumulatedLossWrongScale(IncompatibleVersions):
    def version_context(self, run: Run) -> VersionContext | None:
        """Applies to the Trainer with gradient accumulation."""
        given = run.arguments.get("gradient_accumulation_steps")
        if given.number is None or given.number <= 1 or not uses_trainer(run):
            return None
        return VersionContext({"steps": int(given.number)}, (given.span(),))
