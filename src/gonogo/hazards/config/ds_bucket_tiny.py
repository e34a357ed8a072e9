from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words


class DsBucketTiny(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``count``: the collectives for 7B elements; None for ZeRO-3's allgather, which has no bucket."""
        unused = setting.config.zero_stage == 3 and setting.keys[-1] == "allgather_bucket_size"
        return None if unused else {"count": 7e9 / (setting.field.number or 1)}
