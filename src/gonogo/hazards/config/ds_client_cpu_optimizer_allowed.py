from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.facts.deepspeed_settings import optimizer_type
from gonogo.hazards.rule import Span


class DsClientCpuOptimizerAllowed(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """None unless the optimizer is offloaded and the config has no optimizer section."""
        device = setting.config.offload_target("optimizer")
        return {} if device.get("none") != "none" and optimizer_type(setting.config) is None else None

    def related_spans(self, setting: SettingInConfig) -> tuple[Span | None, ...]:
        """The setting that offloads the optimizer."""
        return (setting.config.offload_target("optimizer").span(),)
