from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class SplitBatchNotDividing(LoggedHazard):
    """A batch that is to be split over the processes does not divide by their number.
    ## What happens
    "ValueError: To use a `DataLoader` in `split_batches` mode, the batch size (12) needs to be a round multiple
    of the number of processes (8)", in `accelerator.prepare`.
    ## Why
    With `split_batches=True` the loader's batch size is that of all processes together, and each takes its
    part. Without it the batch size is each process's.
    ## Example
    ```python
    DataLoader(data, batch_size=12)     # wrong with split_batches on 8 GPUs
    DataLoader(data, batch_size=16)     # right: 2 rows for each
    ```
    ## Cure
    A batch size that is a multiple of the number of processes, or `split_batches=False` with the batch size of
    one process.
    ## When it is safe
    With `split_batches=False`.
    ## Sources
    - https://huggingface.co/docs/accelerate/package_reference/utilities: what split_batches means
    - https://github.com/huggingface/accelerate/blob/main/src/accelerate/data_loader.py: where it is refused
    """

    name = "split-batch-not-dividing"
    title = Text("A split batch does not divide by the processes", "要拆分的批次不能被进程数整除")
    log_words = ("split_batches",)
    signs = (
        Sign(
            Pattern(
                r"in `split_batches` mode, the batch size \((?P<size>\d+)\) needs to be a round multiple of the "
                r"number of processes \((?P<world>\d+)\)"
            ),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "split_batches divides each batch of {size} rows over {world} processes, which does not go.",
        "split_batches 要把每个 {size} 行的批次分给 {world} 个进程，无法整除。",
    )
    cures = (
        Text(
            "Make the DataLoader's batch_size a multiple of {world}; or split_batches=False, and the batch "
            "size of one process",
            "让 DataLoader 的 batch_size 为 {world} 的倍数；或 split_batches=False，并使用单个进程的批次大小",
        ),
    )
