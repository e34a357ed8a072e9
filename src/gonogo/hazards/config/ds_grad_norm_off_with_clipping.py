from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.deepspeed_settings import config_key_span
from gonogo.hazards.rule import DeepSpeedConfig, Span


class DsGradNormOffWithClipping(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """The setting that needs the gradient norm."""
        needs = _setting_that_needs_norm(setting.config)
        return {"beside": needs} if needs else None

    def spans_beside(self, setting: Setting) -> tuple[Span | None, ...]:
        """The place of that setting."""
        return (config_key_span(setting.config, *_setting_that_needs_norm(setting.config).split(".")),)


def _setting_that_needs_norm(config: DeepSpeedConfig) -> str:
    """The first setting that makes DeepSpeed compute the norm; empty if there is none."""
    if config.zero_stage in (0, 3):
        return "zero_optimization.stage"
    if config.get("gradient_clipping").number:
        return "gradient_clipping"
    return "zero_optimization.offload_optimizer" if config.offload_target("optimizer").get("none") != "none" else ""
