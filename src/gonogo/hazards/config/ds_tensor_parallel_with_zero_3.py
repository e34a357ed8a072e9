from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.deepspeed_settings import deepspeed_version_matches
from gonogo.hazards.rule import Certainty


class DsTensorParallelWithZero3(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """Applies unless the release supports the combination."""
        return None if deepspeed_version_matches(setting.run, ">=0.19.4") else {}

    def certainty_for(self, setting: Setting) -> Certainty:
        """Certain if the release is known."""
        return Certainty.CERTAIN if deepspeed_version_matches(setting.run, "<=0.19.3") else Certainty.POSSIBLE
