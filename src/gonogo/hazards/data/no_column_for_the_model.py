from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_EMPTY = Pattern(r"Invalid key: .{1,40} is out of bounds for size 0")
_EMPTY_CAUSE = Text(
    "A data set without columns has no rows: the Trainer keeps only columns that the model's forward takes, and "
    "found none.",
    "没有列的数据集没有行：Trainer 只保留模型 forward 接受的列，而一列也没有找到。",
)


class NoColumnForTheModel(LoggedHazard):
    """The data's columns are not what the trainer or the model takes.
    ## What happens
    "ValueError: No columns in the dataset match the model's forward method signature: (input_ids, ...). The
    following columns have been ignored: [text]", when training starts; of preference training "KeyError:
    'rejected'" or "'chosen'" from trl. Before transformers 4.39: "IndexError: Invalid key: 14 is out of bounds for
    size 0" in the first batch, though the data has rows (a data set without columns has length 0).
    ## Why
    The Trainer drops every column that is no parameter of the model's `forward`, and here none is left: the
    text was never tokenized, the map's result was thrown away or has other names, the model is wrapped so that its
    forward is `(*args, **kwargs)`, or the collator was to make the inputs out of
    columns that were dropped before it saw them. TRL's trainers ask for columns by name: prompt, chosen and
    rejected for DPO and reward models, messages, text, or prompt and completion for SFT.
    ## Example
    ```python
    data.map(lambda r: {"tokens": tok(r["text"]).input_ids})        # wrong: forward has no "tokens"
    data.map(lambda r: tok(r["text"], truncation=True))             # right: input_ids, attention_mask
    ```
    ## Cure
    Give the columns the names that the message lists (`rename_column`), or tokenize with the tokenizer's own
    names. Where the collator makes the inputs: `remove_unused_columns=False`.
    ## When it is safe
    Where the inputs are made in the collator and `remove_unused_columns=False` is set.
    ## Sources
    - https://github.com/huggingface/transformers/issues/33119: a model wrapped in DataParallel has another forward
    - https://github.com/huggingface/transformers/issues/29458: the same before it was told so
    - https://github.com/canopyai/Orpheus-TTS/issues/105: text and audio, not tokenized
    - https://github.com/huggingface/datasets/issues/2988: map without a return: nothing is left; size 0
    - https://github.com/huggingface/datasets/issues/5946: the result of map was not kept; size 0
    """

    name = "no-column-for-the-model"
    title = Text("No column of the data is what the model takes", "数据中没有模型可接收的列")
    log_words = (
        "No columns in the dataset",
        "is out of bounds for size 0",
        *(f"KeyError: '{name}'" for name in ("prompt", "text", "chosen", "rejected", "messages", "completion")),
    )
    ends_at = (("datasets/formatting/formatting.py", "_check_valid_index_key"),)
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"No columns in the dataset match the model's forward method signature(?::? "
                r"\((?P<takes>[^)]*)\))?\. The following columns have been ignored: \[(?P<has>[^\]]*)\]"
            ),
            Certainty.CERTAIN,
        ),
        Sign(
            Pattern(r"^'(?P<has>chosen|rejected|completion|messages)'(?:\s|$)"),
            types=("KeyError",),
            lines=False,
            frames=(("trl/trainer/",),),
            cause=Text(
                "TRL's trainer asks for the column {has}, which the data does not have.",
                "TRL 的训练器需要列 {has}，而数据中没有。",
            ),
        ),
        Sign(
            Pattern(r"^'(?P<has>prompt|text)'(?:\s|$)"),
            Certainty.POSSIBLE,
            types=("KeyError",),
            lines=False,
            frames=(("trl/trainer/",), ('["prompt"]', '["text"]', "dataset_text_field")),
            cause=Text(
                "TRL's trainer asks for the column {has}, which the data does not have, or another release of TRL "
                "names it so.",
                "TRL 的训练器需要列 {has}，而数据中没有，或是另一版本的 TRL 使用这个列名。",
            ),
        ),
        Sign(_EMPTY, types=("IndexError",), frames=(("transformers/trainer",),), lines=False, cause=_EMPTY_CAUSE),
        Sign(_EMPTY, Certainty.POSSIBLE, cause=_EMPTY_CAUSE),
    )
    cause = Text(
        "The data has the columns {has}; none is a parameter of the model's forward, so the Trainer drops all of them.",
        "数据的列为 {has}；它们都不是模型 forward 的参数，因此 Trainer 会全部丢弃。",
    )
    cures = (
        Text(
            "Name the columns as the model or the trainer takes them: tokenize to input_ids, attention_mask, "
            "labels; rename_column for prompt, chosen, rejected",
            "按模型或训练器的要求命名列：分词得到 input_ids、attention_mask、labels；用 rename_column 改为 "
            "prompt、chosen、rejected",
        ),
        Text(
            "Where the collator makes the inputs: remove_unused_columns=False",
            "由 collator 生成输入时：remove_unused_columns=False",
        ),
    )
