from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.deepspeed_settings import ZERO, optimizer_type
from gonogo.hazards.rule import Certainty


class DsNvmeBuffersTooFew(ConfigHazard):
    def context_for(self, at: Setting) -> Words | None:
        """Adam on NVMe."""
        nvme = at.config.get(ZERO, "offload_optimizer", "device").value == "nvme"
        return {} if nvme and (optimizer_type(at.config) or "adam").lower() in ("adam", "adamw") else None

    def certainty_for(self, at: Setting) -> Certainty:
        """Certain where the config names the optimizer."""
        return Certainty.CERTAIN if optimizer_type(at.config) else Certainty.LIKELY
