from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class UnsizedDataWithoutMaxSteps(LoggedHazard):
    """The training data has no length, and max_steps is not given.
    ## What happens
    "ValueError: The train_dataset does not implement __len__, max_steps has to be specified", or
    "args.max_steps must be set to a positive value if dataloader does not have a length", when the Trainer is
    made.
    ## Why
    A streamed data set (`load_dataset(..., streaming=True)`, `to_iterable_dataset()`, an `IterableDataset`) has
    no length. The Trainer needs the number of steps for the end of training and for the learning rate's
    schedule; `num_train_epochs` does not tell it. A data set of fewer rows than one batch of all ranks (in GRPO: than
    one generation has prompts) has the length 0, of which the Trainer says the same.
    ## Example
    ```python
    TrainingArguments(num_train_epochs=3)      # wrong for streamed data
    TrainingArguments(max_steps=10_000)        # right: rows * epochs / (batch * accumulation * GPUs)
    ```
    ## Cure
    `max_steps`: rows times epochs, divided by per-device batch, gradient accumulation and number of GPUs. Or
    data with a length: no streaming, or `__len__` in the data set.
    ## When it is safe
    Where `max_steps` is given, or the data set has `__len__`.
    ## Sources
    - https://github.com/huggingface/transformers/pull/22333: why max_steps is needed
    - https://github.com/modelscope/ms-swift/issues/6827: --streaming true in ms-swift
    - https://github.com/huggingface/datasets/issues/5773: a streamed speech corpus
    """

    name = "unsized-data-without-max-steps"
    title = Text("max_steps is missing for data without a length", "数据没有长度而未设置 max_steps")
    log_words = ("does not implement __len__", "does not have a length")
    signs = (
        Sign(
            Pattern(
                r"train_dataset does not implement __len__|max_steps must be set to a positive value if "
                r"dataloader does not have a length"
            ),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "The training data is streamed, so its length is unknown, or it has fewer rows than one batch of all ranks "
        "(the Trainer says the same of both), and max_steps does not say how long to train.",
        "训练数据为流式，长度未知，或其行数不足所有 rank 的一个批次（Trainer 对两者的说法相同），而 "
        "max_steps 没有说明训练多久。",
    )
    cures = (
        Text(
            "Set max_steps: rows * epochs / (per-device batch * accumulation * GPUs)",
            "设置 max_steps：行数 × epoch 数 /（每卡批次 × 累积步数 × GPU 数）",
        ),
        Text("Or load the data without streaming", "或不使用流式加载"),
        Text(
            "Where it isn't streamed: more rows, or smaller batches (per-device batch, steps_per_generation)",
            "若并非流式：增加数据行，或减小批次（每卡批次、steps_per_generation）",
        ),
    )
