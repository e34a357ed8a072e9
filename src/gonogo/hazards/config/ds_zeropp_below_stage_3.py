from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words


class DsZeroppBelowStage3(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """None if the value is the default, which has no effect."""
        size = setting.keys[-1] == "zero_hpz_partition_size"
        return {} if ((setting.field.number or 0) > 1 if size else setting.field.truth) else None
