from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.deepspeed_settings import ZERO


class DsStage3PersistenceThresholdHuge(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """Applies if there is no limit for the whole model."""
        return {} if setting.config.raw(ZERO, "stage3_model_persistence_threshold").absent else None
