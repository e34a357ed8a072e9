from gonogo.hazards.rule import Run
from gonogo.hazards.version_rule import Around, UnfitVersions


class AccelerateDeepspeedLearningRateRegression(UnfitVersions):
    def around(self, run: Run) -> Around | None:
        """DeepSpeed, more than one process, and a learning rate that changes."""
        if not run.deepspeed_on or run.world_size in (None, 1):
            return None
        if run.arguments.get("lr_scheduler_type").get() == "constant":
            return None
        return Around({"world": run.world_size}, (run.config_field.span(),))
