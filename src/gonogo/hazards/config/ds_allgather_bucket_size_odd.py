from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words, number_test


class DsAllgatherBucketSizeOdd(ConfigHazard):
    wrong = staticmethod(number_test(lambda size: size % 2 == 1))

    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``even``: the next even bucket size."""
        return {"even": int(setting.field.number or 0) + 1}
