from gonogo.hazards.config_rule import ConfigHazard, Setting, Words


class DsZeroppBelowStage3(ConfigHazard):
    def context_for(self, at: Setting) -> Words | None:
        """It has another value than the default."""
        size = at.keys[-1] == "zero_hpz_partition_size"
        return {} if ((at.field.number or 0) > 1 if size else at.field.truth) else None
