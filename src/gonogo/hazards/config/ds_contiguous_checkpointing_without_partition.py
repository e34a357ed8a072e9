from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, true
from gonogo.hazards.facts.how_it_trains import mentions
from gonogo.hazards.rule import Certainty, Pattern, Refusal, Text


class DsContiguousCheckpointingWithoutPartition(ConfigHazard):
    """contiguous_memory_optimization is on without partition_activations or number_checkpoints.
    ## What happens
    deepspeed.checkpointing.configure stops: "Contiguous Checkpointing is only available with partitioned
    activations", or "Must specify the number of layers with contiguous memory checkpointing".
    ## Why
    The buffer is laid out for a known number of partitioned checkpoints.
    ## Example
    ```json
    "activation_checkpointing": {"contiguous_memory_optimization": true}   // wrong
    "activation_checkpointing": {"contiguous_memory_optimization": true,
                                 "partition_activations": true, "number_checkpoints": 32}   // right: 32 layers
    ```
    ## Cure
    Set partition_activations to true and number_checkpoints to the number of layers, or take
    contiguous_memory_optimization out.
    ## When it is safe
    Where nothing calls deepspeed.checkpointing.configure, as under transformers.
    ## Sources
    - https://deepspeed.readthedocs.io/en/latest/activation-checkpointing.html: contiguous checkpoints need
      partitioned ones
    - https://www.deepspeed.ai/docs/config-json/: activation_checkpointing
    """

    name = "ds-contiguous-checkpointing-without-partition"
    title = Text("Contiguous activation checkpoints need partitioned ones", "连续的激活检查点要求先切分激活")
    refusal = Refusal(Pattern(r"Contiguous Checkpointing is only available with partitioned activations"))

    keys = ("activation_checkpointing.contiguous_memory_optimization",)
    wrong = true
    certainty = Certainty.LIKELY
    cause = Text(
        "{key} is on and {lacking} is not given: deepspeed.checkpointing.configure refuses that.",
        "开启了 {key}，却没有 {lacking}：deepspeed.checkpointing.configure 会拒绝。",
    )
    cure = (
        Text(
            "Set partition_activations to true and number_checkpoints to the number of layers",
            "把 partition_activations 设为 true，把 number_checkpoints 设为层数",
        ),
    )

    def around(self, at: Setting) -> Words | None:
        """What it needs and lacks, where the scripts configure the checkpointing."""
        if not mentions(at.run, "checkpointing.configure"):
            return None
        if at.config.raw(at.keys[0], "partition_activations").truth is not True:
            return {"lacking": "partition_activations"}
        counted = at.config.raw(at.keys[0], "number_checkpoints").number is not None
        return None if counted else {"lacking": "number_checkpoints"}
