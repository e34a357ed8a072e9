from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.facts.deepspeed_settings import deepspeed_version_matches
from gonogo.hazards.rule import Certainty


class DsTensorParallelWithZero3(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """None if the release supports tensor parallelism with ZeRO-3."""
        return None if deepspeed_version_matches(setting.run, ">=0.19.4") else {}

    def certainty_for(self, setting: SettingInConfig) -> Certainty:
        """Certain if the DeepSpeed release is known."""
        return Certainty.CERTAIN if deepspeed_version_matches(setting.run, "<=0.19.3") else Certainty.POSSIBLE
