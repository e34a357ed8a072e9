from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.deepspeed_settings import ZERO, span_in
from gonogo.hazards.rule import Span


class DsPrescaleGradientsWithZero(ConfigHazard):
    def context_for(self, at: Setting) -> Words | None:
        """Either has another value than the default, and reduce-scatter is not off."""
        scatter = at.config.raw(ZERO, "reduce_scatter")
        scaled = at.field.truth if at.keys[0] == "prescale_gradients" else at.field.number not in (None, 1)
        return {} if scaled and not scatter.unknown and scatter.truth is not False else None

    def spans_beside(self, at: Setting) -> tuple[Span | None, ...]:
        """The setting of reduce-scatter, or the stage whose default it is."""
        return (span_in(at.config, ZERO, "reduce_scatter") or span_in(at.config, ZERO, "stage"),)
