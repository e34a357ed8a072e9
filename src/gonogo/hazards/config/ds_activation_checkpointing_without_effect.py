"""ds-activation-checkpointing-without-effect."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Severity, Text
from gonogo.hazards.config._written import key_spot
from gonogo.hazards.facts.how_it_trains import fix_of, mentions, with_trainer
from gonogo.hazards.hazard import Hazard

_ASKS = ("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization")


class DsActivationCheckpointingWithoutEffect(Hazard):
    """activation_checkpointing asks for something, and transformers' models do not use it.

    ## What happens
    Activations take as much memory as without the section.

    ## Why
    The section configures deepspeed.checkpointing.checkpoint(), which a model has to call itself. transformers'
    models call torch's, where gradient checkpointing is on.

    ## Cure
    Use `--gradient_checkpointing true`; remove the section.

    ## When it is safe
    Megatron-DeepSpeed and models that call deepspeed.checkpointing.

    ## Sources
    - https://github.com/huggingface/transformers/pull/22099: the two checkpointings under transformers
    - https://github.com/deepspeedai/DeepSpeed/issues/5704: the section alone changes nothing
    """

    page_zh = """配置在 activation_checkpointing 中提出要求，而 transformers 的模型不会使用它。

    ## 现象
    激活占用的显存与没有该段时一样。

    ## 原因
    该段配置的是 deepspeed.checkpointing.checkpoint()，需要模型自己调用；transformers 的模型在开启 gradient
    checkpointing 时调用的是 torch 的实现。

    ## 解决办法
    使用 `--gradient_checkpointing true`，并去掉该段。

    ## 何时安全
    Megatron-DeepSpeed 以及调用 deepspeed.checkpointing 的模型。

    ## 来源
    - https://github.com/huggingface/transformers/pull/22099：transformers 下的两种 checkpointing
    - https://github.com/deepspeedai/DeepSpeed/issues/5704：仅有该段不会改变任何东西
    """

    name = "ds-activation-checkpointing-without-effect"
    title = Text(
        en="The config's activation_checkpointing section has no effect under transformers",
        zh="activation_checkpointing 段在 transformers 下不起作用",
    )
    sources = (
        "https://github.com/huggingface/transformers/pull/22099",
        "https://github.com/deepspeedai/DeepSpeed/issues/5704",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
        """A section that asks for something, in a run that transformers' Trainer trains."""
        asked = [key for key in _ASKS if config.raw("activation_checkpointing", key).truth]
        if not asked or not with_trainer(run) or mentions(run, "deepspeed.checkpointing", "activation_checkpointing"):
            return
        checkpointing = run.arguments.get("gradient_checkpointing").truth
        yield self.finding(
            Text(
                en="activation_checkpointing asks for {asked}, which transformers' models do not use: the section "
                "has no "
                "effect.",
                zh="activation_checkpointing 要求 {asked}，而 transformers 的模型不使用它：该段不起作用。",
            ).format(asked=", ".join(asked)),
            severity=Severity.NOTE,
            cure=(
                Text("Remove the section", "去掉该段")
                if checkpointing
                else Text(
                    "Use --gradient_checkpointing true, and remove the section",
                    "使用 --gradient_checkpointing true，并去掉该段",
                ),
            ),
            spans=(key_spot(config, "activation_checkpointing"),),
            fixes=fix_of(Text("remove the section", "去掉该段"), lambda: config.removing("activation_checkpointing")),
        )
