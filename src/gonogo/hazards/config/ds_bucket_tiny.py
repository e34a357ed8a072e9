from gonogo.hazards.config_rule import ConfigHazard, Setting, Words


class DsBucketTiny(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """How many collectives that makes; ZeRO-3 has no bucket for allgather."""
        unused = setting.config.zero_stage == 3 and setting.keys[-1] == "allgather_bucket_size"
        return None if unused else {"count": 7e9 / (setting.field.number or 1)}
