from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.how_it_trains import as_json


class DsOffloadParamBelowStage3(ConfigHazard):
    def context_for(self, at: Setting) -> Words | None:
        """The device, unless it is none."""
        device = at.config.offload("param")
        return {"device": as_json(device.value)} if device.known and device.value != "none" else None
