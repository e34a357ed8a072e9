from gonogo.hazards.facts.training_framework import uses_trainer
from gonogo.hazards.rule import Run
from gonogo.hazards.version_rule import IncompatibleVersions, VersionContext


class TorchLoadRefusedBelow26(IncompatibleVersions):
    def version_context(self, run: Run) -> VersionContext | None:
        """Applies to a Trainer that resumes."""
        resumed = run.arguments.get("resume_from_checkpoint")
        if not resumed.known or resumed.truth is False or str(resumed.value).lower() in ("none", "", "null"):
            return None
        return VersionContext(spans=(resumed.span(),)) if uses_trainer(run) else None
