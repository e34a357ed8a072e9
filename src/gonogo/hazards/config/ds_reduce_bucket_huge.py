from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.deepspeed_settings import ZERO, gib, span_in
from gonogo.hazards.rule import DeepSpeedConfig, Span, translated

_TWO = translated(" in each of two buffers (overlap_comm)")


class DsReduceBucketHuge(ConfigHazard):
    def context_for(self, at: Setting) -> Words | None:
        """The buffers' bytes, where they are more than 4 GiB."""
        twice = _twice(at.config)
        each = 4 if twice else 2
        taken = (at.field.number or 0) * each
        if taken <= 4 * 1024**3 or at.config.raw(ZERO, "contiguous_gradients").truth is False:
            return None
        return {"two": _TWO if twice else "", "taken": gib(taken), "small": gib(5e8 * each)}

    def spans_beside(self, at: Setting) -> tuple[Span | None, ...]:
        """What makes it two buffers."""
        return (span_in(at.config, ZERO, "overlap_comm") if _twice(at.config) else None,)


def _twice(config: DeepSpeedConfig) -> bool:
    return config.raw(ZERO, "overlap_comm").truth is True and config.zero_stage != 3
