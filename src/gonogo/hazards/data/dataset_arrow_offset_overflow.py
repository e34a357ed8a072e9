from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class DatasetArrowOffsetOverflow(LoggedHazard):
    """Texts or images of more than 2 GiB come together in one Arrow column, whose offsets have 32 bits.
    ## What happens
    "pyarrow.lib.ArrowInvalid: offset overflow while concatenating arrays", from datasets' `arrow_writer.py`
    (`combine_chunks`), while a large JSON file is read, or in `map` over images.
    ## Why
    Arrow's `string`, `binary` and `list` address their values by 32-bit offsets: one array holds at most 2 GiB.
    datasets reads a JSON file as few large blocks, or a batch of `map` returns too much at once, and joins them.
    ## Example
    ```python
    rows = rows.map(encode, batched=True)    # wrong with images or long texts: 1000 rows a batch
    rows = rows.map(encode, batched=True, batch_size=50, writer_batch_size=50)    # right
    ```
    ## Cure
    Smaller batches in `map` (`batch_size`, `writer_batch_size`; LLaMA-Factory: preprocessing_batch_size, or streaming).
    While a file is read: split it into several, write one JSON object a line (.jsonl), or Parquet with `large_string`.
    Keep images as paths, not as bytes.
    ## When it is safe
    Where no column of a batch has more than 2 GiB.
    ## Sources
    - https://github.com/hiyouga/LlamaFactory/issues/6820: a data set of 8 GB
    - https://github.com/hiyouga/LlamaFactory/issues/2561: the frames, while a JSON file is read
    """

    name = "dataset-arrow-offset-overflow"
    title = Text(
        "A column of more than 2 GiB comes together in one Arrow array", "一列超过 2 GiB 的数据被合并到一个 Arrow 数组"
    )
    log_words = ("offset overflow while",)
    anywhere = True
    signs = (Sign(Pattern(r"offset overflow while concatenating arrays"), Certainty.CERTAIN),)
    cause = Text(
        "More than 2 GiB of texts, lists or bytes were joined into one Arrow array, whose offsets have 32 bits.",
        "超过 2 GiB 的文本、列表或字节被合并到一个 Arrow 数组，而其偏移量只有 32 位。",
    )
    cures = (
        Text(
            "In map: smaller batch_size and writer_batch_size (LLaMA-Factory: preprocessing_batch_size, or "
            "streaming: true)",
            "map 中：减小 batch_size 与 writer_batch_size（LLaMA-Factory：preprocessing_batch_size，或 streaming: "
            "true）",
        ),
        Text(
            "While a file is read: split it, or write it as .jsonl or Parquet; keep images as paths",
            "读取文件时：拆分文件，或写成 .jsonl 或 Parquet；图像保存为路径",
        ),
    )
