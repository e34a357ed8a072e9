from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class ClassifierWithoutPadToken(LoggedHazard):
    """A decoder with a classification head is given several rows, and its config has no pad token.
    ## What happens
    "ValueError: Cannot handle batch sizes > 1 if no padding token is defined." (an AssertionError in older
    releases), in the first forward of a reward model or a classifier on Llama, Qwen, Mistral, GPT.
    ## Why
    `...ForSequenceClassification` of a decoder reads its score at the last token that is no padding, and so
    must know the padding. It asks the model's config, not the tokenizer: `tokenizer.pad_token =
    tokenizer.eos_token` alone does not reach it.
    ## Example
    ```python
    tokenizer.pad_token = tokenizer.eos_token                     # wrong: not enough
    model.config.pad_token_id = tokenizer.pad_token_id            # right, beside it
    ```
    ## Cure
    `model.config.pad_token_id = tokenizer.pad_token_id` after both are loaded. Where a wrapper has a config of
    its own (PEFT, a value head), set that of the model inside.
    ## When it is safe
    With one row a batch, or encoders (BERT).
    ## Sources
    - https://github.com/huggingface/transformers/issues/34055: the tokenizer has one, the config has not
    - https://github.com/huggingface/trl/issues/422: a reward model on Pythia
    - https://github.com/shibing624/MedicalGPT/issues/417: a reward model on Llama 2
    """

    name = "classifier-without-pad-token"
    title = Text("The model's config has no pad token", "模型配置中没有 pad token")
    log_words = ("no padding token",)
    signs = (Sign(Pattern(r"Cannot handle batch sizes > 1 if no padding token is defined"), Certainty.CERTAIN),)
    cause = Text(
        "The classification head looks for the last token that is no padding, and "
        "model.config.pad_token_id is not set.",
        "分类头要找到最后一个非填充 token，而 model.config.pad_token_id 没有设置。",
    )
    cures = (
        Text(
            "model.config.pad_token_id = tokenizer.pad_token_id, after both are loaded",
            "两者都加载之后：model.config.pad_token_id = tokenizer.pad_token_id",
        ),
    )
