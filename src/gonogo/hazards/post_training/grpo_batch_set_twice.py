from gonogo.hazards.post_training._generation_batch import is_grpo
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class GrpoBatchSetTwice(LoggedHazard):
    """generation_batch_size and steps_per_generation are both given, and each says the other.
    ## What happens
    "ValueError: 'generation_batch_size' and 'steps_per_generation' can not be both configured at the same time", where
    GRPOConfig is made.
    ## Why
    The completions generated at a time are processes × per-device batch × steps_per_generation; generation_batch_size
    is that product. GRPOConfig fills in the one that is left out, so a config that was saved, printed or copied after
    it was made has both, and so has one that is made of another's values (`GRPOConfig(**vars(args))`, a deepcopy by
    `dataclasses.replace`).
    ## Example
    ```python
    GRPOConfig(generation_batch_size=64, steps_per_generation=4)    # wrong
    GRPOConfig(steps_per_generation=4)    # right
    ```
    ## Cure
    Give one of them. Where a finished config is copied, leave generation_batch_size out of the copy, or set it to None.
    ## When it is safe
    Where one of the two is left out, or None.
    ## Sources
    - https://github.com/huggingface/trl/issues/3980: refused though the script gives neither
    - https://github.com/huggingface/trl/pull/3725: the two are mutually exclusive
    - https://github.com/modelscope/ms-swift/pull/8048: the same check in ms-swift
    """

    name = "grpo-batch-set-twice"
    title = Text("The GRPO batch is given twice", "GRPO 的生成批次给出了两次")
    log_words = ("can not be both configured",)
    anywhere = True
    signs = (
        Sign(
            Pattern(r"'generation_batch_size' and 'steps_per_generation' can ?not be both configured"),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "generation_batch_size and steps_per_generation are both set, and either says what the other is.",
        "generation_batch_size 与 steps_per_generation 同时给出，而二者可互相推出。",
    )
    cures = (
        Text(
            "Leave one out; where a finished config is copied (saved arguments, dataclasses.replace), leave "
            "generation_batch_size out of the copy",
            "去掉其中一个；若复制的是已建立的配置（保存的参数、dataclasses.replace），副本中"
            "不要带 generation_batch_size",
        ),
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Both among the arguments of a GRPO run."""
        both = [run.arguments.get(name) for name in ("generation_batch_size", "steps_per_generation")]
        if not all(field.known and field.value is not None for field in both) or not is_grpo(launch, run):
            return
        yield self.finding(
            self.cause,
            certainty=Certainty.LIKELY if run.framework == "ms-swift" else Certainty.CERTAIN,
            cure=self.cures,
            spans=tuple(field.span() for field in both),
        )
