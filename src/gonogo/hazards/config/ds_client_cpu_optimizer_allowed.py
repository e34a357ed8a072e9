from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.deepspeed_settings import optimizer_type
from gonogo.hazards.rule import Span


class DsClientCpuOptimizerAllowed(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """Applies if the optimizer is offloaded and the config has no optimizer."""
        device = setting.config.offload_target("optimizer")
        return {} if device.get("none") != "none" and optimizer_type(setting.config) is None else None

    def spans_beside(self, setting: Setting) -> tuple[Span | None, ...]:
        """The setting that offloads the optimizer."""
        return (setting.config.offload_target("optimizer").span(),)
