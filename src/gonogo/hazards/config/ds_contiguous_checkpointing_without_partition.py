"""ds-contiguous-checkpointing-without-partition."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.config._written import spot
from gonogo.hazards.facts.how_it_trains import mentions
from gonogo.hazards.hazard import Hazard


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

    page_zh = """开启了 contiguous_memory_optimization，却没有 partition_activations 或 number_checkpoints。

    ## 现象
    deepspeed.checkpointing.configure 停止：“Contiguous Checkpointing is only available with partitioned
    activations”，或 “Must specify the number of layers with contiguous memory checkpointing”。

    ## 原因
    缓冲区按已知数量的切分检查点来分配。

    ## 解决办法
    把 partition_activations 设为 true，并把 number_checkpoints 设为层数；或去掉 contiguous_memory_optimization。

    ## 何时安全
    没有代码调用 deepspeed.checkpointing.configure 时（如在 transformers 下）。

    ## 来源
    - https://deepspeed.readthedocs.io/en/latest/activation-checkpointing.html：连续检查点要求切分激活
    - https://www.deepspeed.ai/docs/config-json/：activation_checkpointing
    """

    name = "ds-contiguous-checkpointing-without-partition"
    title = Text(en="Contiguous activation checkpoints need partitioned ones", zh="连续的激活检查点要求先切分激活")
    sources = (
        "https://deepspeed.readthedocs.io/en/latest/activation-checkpointing.html",
        "https://www.deepspeed.ai/docs/config-json/",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
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
                en="contiguous_memory_optimization is on and {lacking} is not given: "
                "deepspeed.checkpointing.configure "
                "refuses that.",
                zh="开启了 contiguous_memory_optimization，却没有 {lacking}：deepspeed.checkpointing.configure 会"
                "拒绝。",
            ).format(lacking=lacking),
            certainty=Certainty.LIKELY,
            cure=(
                Text(
                    "Set partition_activations to true and number_checkpoints to the number of layers",
                    "把 partition_activations 设为 true，把 number_checkpoints 设为层数",
                ),
            ),
            spans=(spot(config, section, "contiguous_memory_optimization"),),
        )
