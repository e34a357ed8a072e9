from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.facts.deepspeed_settings import ZERO, optimizer_type
from gonogo.hazards.rule import Certainty


class DsNvmeBuffersTooFew(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """None unless Adam's states are offloaded to NVMe."""
        nvme = setting.config.get(ZERO, "offload_optimizer", "device").value == "nvme"
        return {} if nvme and (optimizer_type(setting.config) or "adam").lower() in ("adam", "adamw") else None

    def certainty_for(self, setting: SettingInConfig) -> Certainty:
        """Certain if the config names the optimizer."""
        return Certainty.CERTAIN if optimizer_type(setting.config) else Certainty.LIKELY
