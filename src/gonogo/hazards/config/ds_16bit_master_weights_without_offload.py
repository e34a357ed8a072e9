from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.rule import translated


class Ds16bitMasterWeightsWithoutOffload(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """The optimizer's device; None if ZeRO keeps it on the CPU or the device is unknown."""
        device = setting.config.offload_target("optimizer")
        if not device.known or (setting.config.zero_stage and device.value != "none"):
            return None
        return {"device": translated("the GPU") if device.value == "none" else device.value}
