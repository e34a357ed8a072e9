from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import Evidence, LoggedHazard, Sign

_ZERO = Pattern(r"(?:float |integer )?(?:division|modulo) (?:or modulo )?by zero|integer modulo by zero")
_BATCHES = Pattern(
    r"(?:/|//|%)=?\s*\(?\s*(?:float\()?len\(\s*(?:self\.|\w+\.)*\w*(?:loader|_dl|iterator|iterable)\w*(?:\.dataset)?\s*\)"
    r"|(?:/|//|%)\s*(?:self\.|args\.)?(?:num_update_steps_per_epoch|steps_(?:in|per)_epoch|len_dataloader|num_batches"
    r"|effective_global_step|self\.state\.global_step)\b"
)
"""What is divided by: how many batches there are, or steps of them, by the names that trainers give it."""
_COUNTED = Pattern(
    r"/=?\s*(?:self\.)?(?:nb_tr_steps|tr_steps|train_steps?|epoch_samples|n_batches|total_batches|num_steps)\b"
)


class DataLoaderWithoutBatches(LoggedHazard):
    """The training data yields no batch at all.
    ## What happens
    The Trainer says "There seems not to be a single sample in your epoch_iterator, stopping training at step 0",
    and ends with a loss of 0 or a "ZeroDivisionError: division by zero" where it divides by the number of steps. A
    loop of one's own stops at `iteration / len(train_loader)` or at `loss / n_batches`; Lightning says "Total
    length of `DataLoader` across ranks is zero"; torch, of an empty data set that is to be shuffled, "num_samples
    should be a positive integer value, but got num_samples=0".
    ## Why
    The data set is empty (a wrong path or pattern, a filter or a length limit that leaves nothing, a split that is
    not there), or it has fewer rows than one batch of all processes takes and `drop_last=True` drops that one. A
    streamed data set that was read to its end yields nothing either.
    ## Example
    ```python
    DataLoader(dataset, batch_size=64, drop_last=True)   # wrong for 9 rows: len() is 0
    DataLoader(dataset, batch_size=8, drop_last=True)    # right: one batch
    ```
    ## Cure
    Print len(dataset) after each filter and len(dataloader). Correct the path, the split or the filter; or a
    smaller batch, or drop_last=False (dataloader_drop_last).
    ## When it is safe
    With at least processes times per-device batch rows, or without drop_last.
    ## Sources
    - https://github.com/RUC-GSAI/YuLan-IR/issues/5: 9 rows and a batch of 64
    - https://github.com/ayaanzhaque/MultiMix/issues/1: the loss divided by the number of samples
    - https://github.com/amine0110/Liver-Segmentation-Using-Monai-and-PyTorch/issues/2: no data
    - https://github.com/Sara-Ahmed/SiT/issues/2: the length of a loader in an average
    """

    name = "data-loader-without-batches"
    title = Text("The data loader yields no batches", "DataLoader 没有产生任何 batch")
    log_words = ("epoch_iterator", "by zero", "across ranks is zero", "returned 0 length", "num_samples=0")
    signs = (
        Sign(Pattern(r"There seems (?:to be not|not to be) a single sample in your epoch_iterator")),
        Sign(Pattern(r"num_samples should be a positive integer value, but got num_samples=0")),
        Sign(_ZERO, types=("ZeroDivisionError",), lines=False),
        Sign(Pattern(r"Total length of `?\w*DataLoader`? across ranks is zero|`?DataLoader`? returned 0 length")),
    )
    cause = Text(
        "The training data is empty, or has fewer rows than one batch and drop_last drops that one: there is no step "
        "to make.",
        "训练数据为空，或行数少于一个 batch 而被 drop_last 丢弃：没有可执行的 step。",
    )
    cures = (
        Text(
            "Print len(dataset) after each filter, and len(dataloader): correct the path, the split, the filter or the "
            "length limit that leaves nothing",
            "在每次过滤之后打印 len(dataset) 以及 len(dataloader)：修正路径、split、过滤条件或使数据清空的长度限制",
        ),
        Text(
            "Where there are rows, but fewer than processes times batch: a smaller per-device batch, or "
            "dataloader_drop_last: false",
            "若有数据但少于 进程数 × 批次：减小每卡批次，或设置 dataloader_drop_last: false",
        ),
    )
    confirm = Text("len(train_dataloader) is 0 on a rank", "某个 rank 上 len(train_dataloader) 为 0")

    def sureness(self, log: FailureLog, sign: Sign, evidence: Evidence) -> Certainty | None:
        """Of a division by zero the line that divides decides: there are others."""
        if sign.says is not _ZERO:
            return sign.certainty
        last = evidence.innermost if isinstance(evidence, LoggedError) else None
        if last is None:
            return None
        if _BATCHES.search(last.code):
            return Certainty.LIKELY
        return Certainty.POSSIBLE if _COUNTED.search(last.code) else None
