from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words


class DsSchedulerWarmupBeyondTotal(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``total``: the total number of steps; None if the warm-up is not longer."""
        total = setting.config.get("scheduler", "params", "total_num_steps").number
        if total is None or (setting.field.number or 0) <= total:
            return None
        return {"total": total, "few": max(1, total * 0.03)}
