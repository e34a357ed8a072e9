from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.rule import Certainty


class DsNvmeOffloadWithoutPath(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """None if the section has an nvme_path."""
        path = setting.config.raw(*setting.keys[:-1], "nvme_path")
        return {} if path.absent or (path.known and path.value is None) else None

    def certainty_for(self, setting: SettingInConfig) -> Certainty:
        """Certain at stage 3: below it nothing is offloaded to NVMe."""
        return Certainty.CERTAIN if setting.config.zero_stage == 3 else Certainty.LIKELY
