from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class DispatchedBatchesOfDifferentSizes(LoggedHazard):
    """Batches that one process reads for all differ in length, and can't be joined.
    ## What happens
    "RuntimeError: You can't use batches of different size with `dispatch_batches=True` or when using an
    `IterableDataset`", at the first batch of several processes; on one GPU the same program trains.
    ## Why
    For an `IterableDataset` (streaming, `to_iterable_dataset()`) Accelerate lets the first process read a batch
    for each process, join them and send the parts. A collator that pads to the longest row of its batch makes
    batches of different lengths, which can't be joined.
    ## Example
    ```python
    TrainingArguments(…)                                                        # wrong with a streamed data set
    TrainingArguments(…, accelerator_config={"dispatch_batches": False})        # right: each process reads its own
    ```
    ## Cure
    `accelerator_config={"dispatch_batches": False}` in TrainingArguments (Accelerate's own loops:
    `DataLoaderConfiguration(dispatch_batches=False)`); or pad all rows to one length
    (`padding="max_length"`); or `split_batches=True`, with a batch size for all processes together.
    ## When it is safe
    On one process; with rows of one length (packing); with a data set that has a length.
    ## Sources
    - https://github.com/huggingface/transformers/issues/26548: Trainer with an IterableDataset, and the ways out
    - https://github.com/huggingface/accelerate/pull/2325: the message
    - https://github.com/hiyouga/LlamaFactory/issues/2763: streaming on several GPUs
    """

    name = "dispatched-batches-of-different-sizes"
    title = Text("Batches that one process reads for all differ in length", "由一个进程为所有进程读取的批次长度不一")
    log_words = ("batches of different size",)
    signs = (Sign(Pattern(r"You can't use batches of different size with `dispatch_batches=True`"), Certainty.CERTAIN),)
    cause = Text(
        "The data set has no length, so Accelerate's first process reads a batch for each process and joins them; they "
        "are padded each to its own longest row, and do not fit together.",
        "数据集没有长度，因此 Accelerate 由第一个进程为每个进程各读一个批次并拼接；各批次只填充到自身最长的一"
        "行，无法拼接。",
    )
    cures = (
        Text(
            'Each process reads its own: TrainingArguments(accelerator_config={"dispatch_batches": False}), or '
            "DataLoaderConfiguration(dispatch_batches=False)",
            '让每个进程自己读取：TrainingArguments(accelerator_config={"dispatch_batches": False})，或 '
            "DataLoaderConfiguration(dispatch_batches=False)",
        ),
        Text('Or pad all rows to one length: padding="max_length"', '或将所有行填充到同一长度：padding="max_length"'),
    )
