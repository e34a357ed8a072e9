from gonogo.hazards.config._written import span_in
from gonogo.hazards.facts.how_it_trains import mentions
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Text


class DsContiguousCheckpointingWithoutPartition(Hazard):
    """contiguous_memory_optimization is on without partition_activations or number_checkpoints.

    ## What happens
    deepspeed.checkpointing.configure stops: "Contiguous Checkpointing is only available with partitioned
    activations", or "Must specify the number of layers with contiguous memory checkpointing".

    ## Why
    The buffer is laid out for a known number of partitioned checkpoints.

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
    title = Text(en="Contiguous activation checkpoints need partitioned ones", zh="连续的激活检查点要求先切分激活")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The switch without what it needs, where the scripts configure the checkpointing."""
        section = "activation_checkpointing"
        if config.raw(section, "contiguous_memory_optimization").truth is not True:
            return
        if not mentions(run, "checkpointing.configure"):
            return
        partitioned = config.raw(section, "partition_activations").truth is True
        counted = config.raw(section, "number_checkpoints").number is not None
        if partitioned and counted:
            return
        lacking = "number_checkpoints" if partitioned else "partition_activations"
        yield self.finding(
            Text(
                en="contiguous_memory_optimization is on and {lacking} is not given: deepspeed.checkpointing.configure "
                "refuses that.",
                zh="开启了 contiguous_memory_optimization，却没有 {lacking}：deepspeed.checkpointing.configure 会拒绝"
                "。",
            ).format(lacking=lacking),
            certainty=Certainty.LIKELY,
            cure=(
                Text(
                    "Set partition_activations to true and number_checkpoints to the number of layers",
                    "把 partition_activations 设为 true，把 number_checkpoints 设为层数",
                ),
            ),
            spans=(span_in(config, section, "contiguous_memory_optimization"),),
        )
