from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class MsSwiftReadsOptimizerPlaceholder(LoggedHazard):
    """ms-swift reads the groups of an optimizer that DeepSpeed is only to make later.
    ## What happens
    "AttributeError: 'DummyOptim' object has no attribute 'param_groups'", in `create_optimizer` of
    swift/trainers/mixin.py, before the first step, on any number of GPUs.
    ## Why
    With an `optimizer` block in the DeepSpeed config transformers has a placeholder in the optimizer's place until the
    engine is made. From ms-swift 4.2 on `create_optimizer` takes empty groups out of it, and from transformers 5.3 on
    the Trainer calls that with DeepSpeed too. The configs that ms-swift brings (`--deepspeed zero3`) have no such
    block.
    ## Example
    ```sh
    swift sft --model m --deepspeed ds_config.json  # wrong: ds_config.json has "optimizer": {"type": "AdamW", ...}
    swift sft --model m --deepspeed zero3           # right
    ```
    ## Cure
    Take the `optimizer` block out of the config: learning rate, betas and weight decay are ms-swift's own options. With
    offload accelerate makes DeepSpeedCPUAdam of it.
    ## When it is safe
    Without the block; with ms-swift before 4.2, or transformers before 5.3.
    ## Sources
    - https://github.com/modelscope/ms-swift/pull/9173: the release that takes empty groups out
    - https://github.com/huggingface/transformers/issues/24640: which config makes the placeholder
    """

    name = "ms-swift-reads-optimizer-placeholder"
    title = Text(
        "ms-swift looks into an optimizer that DeepSpeed is to make", "ms-swift 读取了应由 DeepSpeed 创建的优化器"
    )
    log_words = ("DummyOptim",)
    signs = (
        Sign(
            Pattern(r"'DummyOptim' object has no attribute 'param_groups'"),
            Certainty.CERTAIN,
            lines=False,
            frames=(("swift/trainers/",),),
        ),
    )
    cause = Text(
        "The DeepSpeed config has an optimizer block, so the optimizer is still a placeholder where ms-swift takes "
        "empty parameter groups out of it.",
        "DeepSpeed 配置中有 optimizer 段，因此 ms-swift 去除空参数组时优化器仍只是占位对象。",
    )
    cures = (
        Text(
            "Take the optimizer block out of the DeepSpeed config: ms-swift makes AdamW by its own options",
            "去掉 DeepSpeed 配置中的 optimizer 段：ms-swift 会按自己的选项创建 AdamW",
        ),
    )
    confirm = (
        Text(
            "pip show ms-swift transformers: 4.2 and 5.3, or newer", "pip show ms-swift transformers：4.2 与 5.3 或更新"
        ),
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """ms-swift's training with an optimizer in the DeepSpeed config."""
        if run.framework != "ms-swift" or run.config is None:
            return
        block = run.config.raw("optimizer")
        versions = [run.environment.within("ms-swift", ">=4.2"), run.environment.within("transformers", ">=5.3")]
        if not block.known or False in versions or run.arguments.get("optimizer").known:
            return
        sure = None not in versions and run.arguments.complete
        yield self.finding(
            self.cause,
            certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
            cure=self.cures[0],
            spans=(
                place.span(Text("the optimizer block", "optimizer 段"))
                if (place := run.config.key_place("optimizer"))
                else None,
                launch.place.span(),
            ),
            confirm=() if sure else self.confirm,
        )
