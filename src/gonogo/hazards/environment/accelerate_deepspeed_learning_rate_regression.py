from gonogo.hazards.rule import Run
from gonogo.hazards.version_rule import IncompatibleVersions, VersionContext


class AccelerateDeepspeedLearningRateRegression(IncompatibleVersions):
    def version_context(self, run: Run) -> VersionContext | None:
        """Applies with DeepSpeed, more than one process, and a learning rate schedule."""
        if not run.uses_deepspeed or run.world_size in (None, 1):
            return None
        if run.arguments.get("lr_scheduler_type").get() == "constant":
            return None
        return VersionContext({"world": run.world_size}, (run.config_field.span(),))
