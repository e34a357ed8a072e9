from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class BatchNormOfOneRow(LoggedHazard):
    """BatchNorm gets a batch with one value per channel.
    ## What happens
    "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 512])",
    often at the end of the first epoch.
    ## Why
    In training BatchNorm takes the variance over the batch, which a single value has not. Mostly the last batch
    of an epoch holds what is left over, one row: `DataLoader` keeps it unless it is told `drop_last=True`. Or
    each rank's batch is 1, and the layer comes after a global pooling ([1, 256, 1, 1]).
    ## Example
    ```python
    DataLoader(data, batch_size=32)                     # wrong, where 32 * n + 1 rows come to a rank
    DataLoader(data, batch_size=32, drop_last=True)     # right
    ```
    ## Cure
    `drop_last=True` for the training loader (`dataloader_drop_last` of transformers' TrainingArguments); a
    batch of 2 or more on each rank; or GroupNorm instead. `SyncBatchNorm` takes the statistics over all ranks,
    which helps where each rank has one row.
    ## When it is safe
    In evaluation (`model.eval()`), or where the rest of an epoch is never one row.
    ## Sources
    - https://github.com/fastai/fastai/issues/1352: the last batch of an epoch; drop_last
    - https://github.com/jfzhang95/pytorch-deeplab-xception/issues/143: [1, 256, 1, 1] after pooling
    - https://github.com/openvinotoolkit/nncf/pull/379: 1000 rows by 3
    """

    name = "batch-norm-of-one-row"
    title = Text("BatchNorm gets one value per channel", "BatchNorm 的每个通道只有一个值")
    log_words = ("value per channel",)
    signs = (
        Sign(
            Pattern(
                r"Expected more than 1 value per channel when training, got input size [^\[]*(?P<size>\[[\d, ]+\])"
            ),
            Certainty.CERTAIN,
        ),
        Sign(
            Pattern(r"Expected more than 1 value per channel when training"),
            Certainty.CERTAIN,
            cause=Text(
                "BatchNorm in training mode got a batch of one value per channel, of which there is no variance.",
                "训练模式下的 BatchNorm 得到每个通道只有一个值的批次，无法计算方差。",
            ),
        ),
    )
    cause = Text(
        "BatchNorm in training mode got {size}: one value per channel, of which there is no variance. "
        "Mostly it is the last batch of an epoch, with the one row that was left.",
        "训练模式下的 BatchNorm 得到 {size}：每个通道只有一个值，无法计算方差。多为一个 epoch 的最后一个批次只剩一行。",
    )
    cures = (
        Text(
            "DataLoader(…, drop_last=True) for training (transformers: dataloader_drop_last=True)",
            "训练用的 DataLoader(…, drop_last=True)（transformers：dataloader_drop_last=True）",
        ),
        Text(
            "Where each rank's batch is one row: a larger batch, GroupNorm, or SyncBatchNorm",
            "每个 rank 的批次只有一行时：增大批次，改用 GroupNorm，或使用 SyncBatchNorm",
        ),
    )
