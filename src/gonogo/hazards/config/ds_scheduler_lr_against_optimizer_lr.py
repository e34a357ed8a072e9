from gonogo.hazards.config_rule import ConfigHazard, Setting, Words


class DsSchedulerLrAgainstOptimizerLr(ConfigHazard):
    def context_for(self, at: Setting) -> Words | None:
        """The rate that the scheduler rises to, where it is another."""
        if at.config.raw("scheduler", "type").value not in ("WarmupLR", "WarmupDecayLR"):
            return None
        highest = at.config.raw("scheduler", "params", "warmup_max_lr").number
        return {"highest": highest} if None not in (highest, at.field.number) and highest != at.field.number else None
