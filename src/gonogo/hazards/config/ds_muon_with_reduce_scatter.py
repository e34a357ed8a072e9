from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.deepspeed_settings import ZERO, config_span, deepspeed_version_matches
from gonogo.hazards.rule import Certainty, Span


class DsMuonWithReduceScatter(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """Applies if reduce-scatter is not off, in a release that has Muon for stage 3."""
        off = setting.config.raw(ZERO, "reduce_scatter").truth is False
        return None if off or deepspeed_version_matches(setting.run, "<0.18.5") else {}

    def certainty_for(self, setting: Setting) -> Certainty:
        """Certain for the releases whose code was read."""
        return Certainty.CERTAIN if deepspeed_version_matches(setting.run, ">=0.18.9") else Certainty.LIKELY

    def spans_beside(self, setting: Setting) -> tuple[Span | None, ...]:
        """The reduce-scatter setting, or else the stage that sets its default."""
        return (config_span(setting.config, ZERO, "reduce_scatter") or config_span(setting.config, ZERO, "stage"),)
