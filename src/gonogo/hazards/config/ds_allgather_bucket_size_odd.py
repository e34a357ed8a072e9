from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, number


class DsAllgatherBucketSizeOdd(ConfigHazard):
    wrong = staticmethod(number(lambda size: size % 2 == 1))

    def context_for(self, at: Setting) -> Words | None:
        """The next even number."""
        return {"even": int(at.field.number or 0) + 1}
