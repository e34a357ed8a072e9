from gonogo.hazards.config_rule import ConfigHazard, Setting, Words


class DsBucketTiny(ConfigHazard):
    def context_for(self, at: Setting) -> Words | None:
        """How many collectives that makes; ZeRO-3 has no bucket for allgather."""
        unused = at.config.zero_stage == 3 and at.keys[-1] == "allgather_bucket_size"
        return None if unused else {"count": 7e9 / (at.field.number or 1)}
