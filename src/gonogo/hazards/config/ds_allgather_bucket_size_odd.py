from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, number


class DsAllgatherBucketSizeOdd(ConfigHazard):
    wrong = staticmethod(number(lambda size: size % 2 == 1))

    def context_for(self, setting: Setting) -> Words | None:
        """The next even number."""
        return {"even": int(setting.field.number or 0) + 1}
