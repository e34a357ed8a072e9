from gonogo.hazards.config_rule import ConfigHazard, Setting, Words


class DsZeroppBelowStage3(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """Applies if the value differs from the default."""
        size = setting.keys[-1] == "zero_hpz_partition_size"
        return {} if ((setting.field.number or 0) > 1 if size else setting.field.truth) else None
