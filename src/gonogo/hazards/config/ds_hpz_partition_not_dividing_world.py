from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, number
from gonogo.hazards.facts.divisors import divisors
from gonogo.hazards.rule import Span


class DsHpzPartitionNotDividingWorld(ConfigHazard):
    wrong = staticmethod(number(lambda size: size > 1 and size == int(size)))

    def context_for(self, setting: Setting) -> Words | None:
        """The world size if the partition size does not divide it."""
        size, ranks = int(setting.field.number or 0), setting.run.world_size
        if ranks is None or size >= ranks or ranks % size == 0:
            return None
        return {"size": size, "ranks": ranks, "divisors": divisors(ranks, minimum=2)}

    def spans_beside(self, setting: Setting) -> tuple[Span | None, ...]:
        """Where the number of ranks is set."""
        return (setting.run.launch.world_size.span() if setting.run.launch else None,)
