from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words


class DsSchedulerLrAgainstOptimizerLr(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``highest``: the scheduler's maximum learning rate; None if it equals the optimizer's."""
        if setting.config.raw("scheduler", "type").value not in ("WarmupLR", "WarmupDecayLR"):
            return None
        highest = setting.config.raw("scheduler", "params", "warmup_max_lr").number
        return (
            {"highest": highest}
            if None not in (highest, setting.field.number) and highest != setting.field.number
            else None
        )
