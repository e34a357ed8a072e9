from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.facts.deepspeed_settings import config_key_span
from gonogo.hazards.rule import DeepSpeedConfig, Span


class DsGradNormOffWithClipping(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``beside``: the setting that needs the gradient norm; None if none does."""
        needs = _find_setting_needing_norm(setting.config)
        return {"beside": needs} if needs else None

    def related_spans(self, setting: SettingInConfig) -> tuple[Span | None, ...]:
        """The place of the setting that needs the gradient norm."""
        return (config_key_span(setting.config, *_find_setting_needing_norm(setting.config).split(".")),)


def _find_setting_needing_norm(config: DeepSpeedConfig) -> str:
    """The first setting that makes DeepSpeed compute the norm; empty if there is none."""
    if config.zero_stage in (0, 3):
        return "zero_optimization.stage"
    if config.get("gradient_clipping").number:
        return "gradient_clipping"
    return "zero_optimization.offload_optimizer" if config.offload_target("optimizer").get("none") != "none" else ""
