from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.facts.deepspeed_settings import ZERO, config_span
from gonogo.hazards.rule import Span


class DsPrescaleGradientsWithZero(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """None if the value is the default, or reduce-scatter is off."""
        scatter = setting.config.raw(ZERO, "reduce_scatter")
        scaled = (
            setting.field.truth if setting.keys[0] == "prescale_gradients" else setting.field.number not in (None, 1)
        )
        return {} if scaled and not scatter.unknown and scatter.truth is not False else None

    def related_spans(self, setting: SettingInConfig) -> tuple[Span | None, ...]:
        """The reduce-scatter setting, or else the stage that sets its default."""
        return (config_span(setting.config, ZERO, "reduce_scatter") or config_span(setting.config, ZERO, "stage"),)
