from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.deepspeed_settings import ZERO, newer_than, span_in
from gonogo.hazards.rule import Certainty, Span


class DsMuonWithReduceScatter(ConfigHazard):
    def context_for(self, at: Setting) -> Words | None:
        """Reduce-scatter is not off, in a release that has Muon at stage 3."""
        off = at.config.raw(ZERO, "reduce_scatter").truth is False
        return None if off or newer_than(at.run, "<0.18.5") else {}

    def certainty_for(self, at: Setting) -> Certainty:
        """Certain for the releases that were looked at."""
        return Certainty.CERTAIN if newer_than(at.run, ">=0.18.9") else Certainty.LIKELY

    def spans_beside(self, at: Setting) -> tuple[Span | None, ...]:
        """The setting of reduce-scatter, or the stage whose default it is."""
        return (span_in(at.config, ZERO, "reduce_scatter") or span_in(at.config, ZERO, "stage"),)
