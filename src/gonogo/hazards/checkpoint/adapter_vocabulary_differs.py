from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import Evidence, LoggedHazard, Sign, match_of


class AdapterVocabularyDiffers(LoggedHazard):
    """An adapter's checkpoint has embeddings of another number of rows than the base model that it is loaded onto.
    ## What happens
    "Error(s) in loading state_dict for PeftModelForCausalLM: size mismatch for
    base_model.model.model.embed_tokens.weight: copying a param with shape torch.Size([128258, 4096]) from checkpoint,
    the shape in current model is torch.Size([128256, 4096])", also for lm_head.
    ## Why
    Tokens were added before the training (`setup_chat_format`, `add_special_tokens`, a template's own tokens), and
    the model resized; peft then saves the embeddings with the adapter. The base model as it comes from the Hub has
    not been resized; or trainer or template pad the rows to a multiple of 64.
    ## Example
    ```python
    model = PeftModel.from_pretrained(base, adapter)     # wrong: base has 128256 rows, the adapter 128258
    base.resize_token_embeddings(128258)                 # right, before: the rows of the checkpoint
    ```
    ## Cure
    Before the adapter is loaded: `base.resize_token_embeddings(ROWS)` with the rows that the message names (mostly
    `len(tokenizer)` of the tokenizer that was saved with the adapter). Or `AutoPeftModelForCausalLM`, which does so
    where the tokenizer lies beside the adapter.
    ## When it is safe
    Where no token was added, and no embedding is in the adapter (`save_embedding_layers=False`).
    ## Sources
    - https://github.com/huggingface/peft/issues/2415: lm_head of Qwen2.5, explained by a maintainer
    - https://github.com/huggingface/peft/pull/1367: the model has to be resized as before the training
    - https://github.com/huggingface/peft/issues/1457: tokens added, then saved with the embeddings
    - https://github.com/EleutherAI/lm-evaluation-harness/pull/1828: the same at evaluation
    """

    name = "adapter-vocabulary-differs"
    title = Text(
        "An adapter was saved with another vocabulary than the base model has", "adapter 保存时的词表与基座模型不同"
    )
    log_words = ("size mismatch for base_model",)
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"size mismatch for base_model\.model\.\S*(?:embed_tokens|wte|word_embeddings|lm_head"
                r"|embed_out|embeddings)\S*: copying a param with shape torch\.Size\(\[(?P<saved>\d+), "
                r"(?P<width>\d+)\]\) from checkpoint, the shape in current model is torch\.Size\(\[(?P<has>\d+), "
                r"(?P<other>\d+)\]\)"
            ),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "The adapter was saved with a vocabulary of {saved} rows, and the base model has {has}: it was resized before "
        "the training, and is not now.",
        "adapter 保存时词表有 {saved} 行，而基座模型有 {has} 行：训练前调整过大小，现在没有。",
    )
    cures = (
        Text(
            "Before the adapter is loaded: base.resize_token_embeddings({saved})",
            "加载 adapter 之前执行 base.resize_token_embeddings({saved})",
        ),
        Text(
            "Or AutoPeftModelForCausalLM.from_pretrained, with the tokenizer that was saved beside the adapter",
            "或用 AutoPeftModelForCausalLM.from_pretrained，并保留与 adapter 一起保存的 tokenizer",
        ),
    )

    def sureness(self, log: FailureLog, sign: Sign, evidence: Evidence) -> Certainty | None:
        """Not at all where the rows are of another length: then the base model is another one."""
        match = match_of(sign.says, evidence)
        sizes = match.groupdict() if match is not None else {}
        return sign.certainty if sizes and sizes["width"] == sizes["other"] else None
