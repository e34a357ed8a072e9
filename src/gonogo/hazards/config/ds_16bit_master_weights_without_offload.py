from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.rule import translated


class Ds16bitMasterWeightsWithoutOffload(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """Where the optimizer is, unless ZeRO keeps it on the CPU or that is not known."""
        device = setting.config.offload("optimizer")
        if not device.known or (setting.config.zero_stage and device.value != "none"):
            return None
        return {"device": translated("the GPU") if device.value == "none" else device.value}
