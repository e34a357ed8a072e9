from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words, number_test
from gonogo.hazards.facts.divisors import smallest_divisors_text
from gonogo.hazards.rule import Span


class DsHpzPartitionNotDividingWorld(ConfigHazard):
    wrong = staticmethod(number_test(lambda size: size > 1 and size == int(size)))

    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``ranks``: the world size, and its divisors; None if the partition size divides it."""
        size, ranks = int(setting.field.number or 0), setting.run.world_size
        if ranks is None or size >= ranks or ranks % size == 0:
            return None
        return {"size": size, "ranks": ranks, "divisors": smallest_divisors_text(ranks, minimum=2)}

    def related_spans(self, setting: SettingInConfig) -> tuple[Span | None, ...]:
        """The place that sets the number of ranks."""
        return (setting.run.launch.world_size.span() if setting.run.launch else None,)
