from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, number
from gonogo.hazards.rule import Span

_MOST_RANKS = 65_536
"""A larger world is a slip of the pen, whose divisors nobody wants to read."""


class DsHpzPartitionNotDividingWorld(ConfigHazard):
    wrong = staticmethod(number(lambda size: size > 1 and size == int(size)))

    def context_for(self, at: Setting) -> Words | None:
        """The number of ranks, where the size does not divide it."""
        size, ranks = int(at.field.number or 0), at.run.world_size
        if ranks is None or size >= ranks or ranks % size == 0:
            return None
        divisors = ", ".join(str(one) for one in range(2, min(ranks, _MOST_RANKS) + 1) if ranks % one == 0)
        return {"size": size, "ranks": ranks, "divisors": divisors}

    def spans_beside(self, at: Setting) -> tuple[Span | None, ...]:
        """Where the number of ranks is set."""
        return (at.run.launch.world_size.span() if at.run.launch else None,)
