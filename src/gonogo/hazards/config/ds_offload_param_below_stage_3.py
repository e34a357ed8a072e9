from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.training_framework import as_json


class DsOffloadParamBelowStage3(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """The device; None if it is "none"."""
        device = setting.config.offload_target("param")
        return {"device": as_json(device.value)} if device.known and device.value != "none" else None
