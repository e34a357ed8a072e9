from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.deepspeed_settings import ZERO, optimizer_type
from gonogo.hazards.rule import Certainty


class DsNvmeBuffersTooFew(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """Applies to Adam on NVMe."""
        nvme = setting.config.get(ZERO, "offload_optimizer", "device").value == "nvme"
        return {} if nvme and (optimizer_type(setting.config) or "adam").lower() in ("adam", "adamw") else None

    def certainty_for(self, setting: Setting) -> Certainty:
        """Certain if the config names the optimizer."""
        return Certainty.CERTAIN if optimizer_type(setting.config) else Certainty.LIKELY
