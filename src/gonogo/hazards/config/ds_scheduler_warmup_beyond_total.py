from gonogo.hazards.config_rule import ConfigHazard, Setting, Words


class DsSchedulerWarmupBeyondTotal(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """The total number of steps if it is smaller."""
        total = setting.config.get("scheduler", "params", "total_num_steps").number
        if total is None or (setting.field.number or 0) <= total:
            return None
        return {"total": total, "few": max(1, total * 0.03)}
