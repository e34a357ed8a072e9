from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.rule import translated


class Ds16bitMasterWeightsWithoutOffload(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``device``: that of the optimizer; None if it is unknown or ZeRO offloads the optimizer."""
        device = setting.config.offload_target("optimizer")
        if not device.known or (setting.config.zero_stage and device.value != "none"):
            return None
        return {"device": translated("the GPU") if device.value == "none" else device.value}
