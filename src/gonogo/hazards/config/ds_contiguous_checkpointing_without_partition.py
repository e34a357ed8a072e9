from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.how_it_trains import mentions


class DsContiguousCheckpointingWithoutPartition(ConfigHazard):
    def context_for(self, at: Setting) -> Words | None:
        """What it needs and lacks, where the scripts configure the checkpointing."""
        if not mentions(at.run, "checkpointing.configure"):
            return None
        if at.config.raw(at.keys[0], "partition_activations").truth is not True:
            return {"lacking": "partition_activations"}
        counted = at.config.raw(at.keys[0], "number_checkpoints").number is not None
        return None if counted else {"lacking": "number_checkpoints"}
