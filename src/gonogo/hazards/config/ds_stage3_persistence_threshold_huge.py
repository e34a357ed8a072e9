from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.facts.deepspeed_settings import ZERO


class DsStage3PersistenceThresholdHuge(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """None if stage3_model_persistence_threshold limits the whole model."""
        return {} if setting.config.raw(ZERO, "stage3_model_persistence_threshold").absent else None
