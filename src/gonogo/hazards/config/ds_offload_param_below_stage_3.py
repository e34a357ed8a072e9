from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.facts.training_framework import format_json


class DsOffloadParamBelowStage3(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``device``: where the parameters are to be offloaded; None if nowhere."""
        device = setting.config.offload_target("param")
        return {"device": format_json(device.value)} if device.known and device.value != "none" else None
