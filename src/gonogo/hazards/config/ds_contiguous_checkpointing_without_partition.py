from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.facts.training_framework import mentions


class DsContiguousCheckpointingWithoutPartition(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``lacking``: the missing setting; None unless the scripts configure DeepSpeed's checkpointing."""
        if not mentions(setting.run, "checkpointing.configure"):
            return None
        if setting.config.raw(setting.keys[0], "partition_activations").truth is not True:
            return {"lacking": "partition_activations"}
        counted = setting.config.raw(setting.keys[0], "number_checkpoints").number is not None
        return None if counted else {"lacking": "number_checkpoints"}
