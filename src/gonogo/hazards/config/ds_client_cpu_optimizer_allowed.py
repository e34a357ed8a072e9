from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.deepspeed_settings import optimizer_type
from gonogo.hazards.rule import Span


class DsClientCpuOptimizerAllowed(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """The optimizer is offloaded, and the config names none."""
        device = setting.config.offload("optimizer")
        return {} if device.get("none") != "none" and optimizer_type(setting.config) is None else None

    def spans_beside(self, setting: Setting) -> tuple[Span | None, ...]:
        """Where the optimizer is offloaded."""
        return (setting.config.offload("optimizer").span(),)
