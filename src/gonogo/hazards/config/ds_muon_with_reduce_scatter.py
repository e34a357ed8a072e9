from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.facts.deepspeed_settings import ZERO, config_span, deepspeed_version_matches
from gonogo.hazards.rule import Certainty, Span


class DsMuonWithReduceScatter(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """None if reduce-scatter is off, or the release has no Muon for stage 3."""
        off = setting.config.raw(ZERO, "reduce_scatter").truth is False
        return None if off or deepspeed_version_matches(setting.run, "<0.18.5") else {}

    def certainty_for(self, setting: SettingInConfig) -> Certainty:
        """Certain for the DeepSpeed releases whose code gonogo's authors have read."""
        return Certainty.CERTAIN if deepspeed_version_matches(setting.run, ">=0.18.9") else Certainty.LIKELY

    def related_spans(self, setting: SettingInConfig) -> tuple[Span | None, ...]:
        """The reduce-scatter setting, or else the stage that sets its default."""
        return (config_span(setting.config, ZERO, "reduce_scatter") or config_span(setting.config, ZERO, "stage"),)
