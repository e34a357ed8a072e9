from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.facts.deepspeed_settings import ZERO, config_span, format_gib
from gonogo.hazards.rule import DeepSpeedConfig, Span


class DsReduceBucketHuge(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """The size of the buffers in bytes; None if they take at most 4 GiB."""
        twice = _has_two_buffers(setting.config)
        each = 4 if twice else 2
        taken = (setting.field.number or 0) * each
        if taken <= 4 * 1024**3 or setting.config.raw(ZERO, "contiguous_gradients").truth is False:
            return None
        return {
            "two": self.texts["two_buffers_text"] if twice else "",
            "taken": format_gib(taken),
            "small": format_gib(5e8 * each),
        }

    def related_spans(self, setting: SettingInConfig) -> tuple[Span | None, ...]:
        """The overlap_comm setting, if it makes DeepSpeed allocate two buffers."""
        return (config_span(setting.config, ZERO, "overlap_comm") if _has_two_buffers(setting.config) else None,)


def _has_two_buffers(config: DeepSpeedConfig) -> bool:
    return config.raw(ZERO, "overlap_comm").truth is True and config.zero_stage != 3
