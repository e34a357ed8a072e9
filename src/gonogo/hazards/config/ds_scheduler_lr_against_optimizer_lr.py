from gonogo.hazards.config_rule import ConfigHazard, Setting, Words


class DsSchedulerLrAgainstOptimizerLr(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """The scheduler's maximum learning rate if it differs from the optimizer's."""
        if setting.config.raw("scheduler", "type").value not in ("WarmupLR", "WarmupDecayLR"):
            return None
        highest = setting.config.raw("scheduler", "params", "warmup_max_lr").number
        return (
            {"highest": highest}
            if None not in (highest, setting.field.number) and highest != setting.field.number
            else None
        )
