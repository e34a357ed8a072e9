from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class TrainerNoLossReturned(LoggedHazard):
    """The model gives the Trainer no loss: no labels came to it, or it has no head that computes one.
    ## What happens
    "ValueError: The model did not return a loss from the inputs, only the following keys: logits. For reference, the
    inputs it received are input_ids,attention_mask."; in older releases "KeyError: 'loss'" where the Trainer reads the
    outputs.
    ## Why
    A model computes a loss from `labels`. They are missing where the data set has no such column, where
    `remove_unused_columns` took a column that the collator would have made them of, or where the collator makes none
    (`default_data_collator`, `DataCollatorWithPadding` for language models). AutoModel without a task has no loss.
    ## Example
    ```python
    Trainer(model, args, train_dataset=data)                                                         # wrong: no labels
    Trainer(model, args, train_dataset=data,
            data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False))                     # right
    ```
    ## Cure
    Give batches labels: `DataCollatorForLanguageModeling(tokenizer, mlm=False)`, or a column `labels`; a model with a
    head (`AutoModelForCausalLM`); `remove_unused_columns=False` with a collator of one's own; `label_names` where they
    have another name.
    ## When it is safe
    With a `compute_loss` of one's own that needs none.
    ## Sources
    - https://github.com/philschmid/sagemaker-huggingface-llama-2-samples/issues/22: the inputs have no labels
    - https://github.com/princeton-nlp/MeZO/issues/19: the same in a Trainer of one's own
    - https://github.com/ai-forever/ru-gpts/issues/87: AutoModel, which has no head; KeyError 'loss'
    """

    name = "trainer-no-loss-returned"
    title = Text("The model returns no loss: it was given no labels", "模型没有返回 loss：它没有收到 labels")
    log_words = ("did not return a loss", "KeyError: 'loss'")
    ends_at = (("transformers/trainer.py", "did not return a loss"),)
    traces = ("For reference, the inputs it received are",)
    anywhere = True
    signs = (
        Sign(Pattern(r"The model did not return a loss from the inputs"), Certainty.POSSIBLE),
        Sign(
            Pattern(r"^'loss'(?:\s|$)|^KeyError: 'loss'(?:\s|$)"),
            Certainty.POSSIBLE,
            types=("KeyError",),
            lines=False,
            frames=(("transformers/file_utils.py", "transformers/utils/generic.py", "compute_loss"),),
        ),
    )
    cause = Text(
        "The model's outputs have no loss: the batch had no labels, or the model has no head that computes one.",
        "模型输出中没有 loss：批次里没有 labels，或模型没有计算 loss 的头。",
    )
    cures = (
        Text(
            "Give batches labels: DataCollatorForLanguageModeling(tokenizer, mlm=False), or a column labels in the "
            "data "
            "set; with a collator of your own remove_unused_columns=False",
            "让批次带有 labels：DataCollatorForLanguageModeling(tokenizer, mlm=False)，或数据集中有 labels 列；自定义 "
            "collator 时设置 remove_unused_columns=False",
        ),
        Text(
            "Load the model with its head: AutoModelForCausalLM instead of AutoModel",
            "加载带头的模型：AutoModelForCausalLM，而不是 AutoModel",
        ),
    )
    confirm = Text(
        "next(iter(trainer.get_train_dataloader())) has no labels",
        "next(iter(trainer.get_train_dataloader())) 中没有 labels",
    )
