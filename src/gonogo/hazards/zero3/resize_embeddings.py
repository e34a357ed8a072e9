"""zero3-resize-embeddings."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazard import Hazard
from gonogo.hazards.zero3._empty_uses import EMPTY_WORDS, RESIZING
from gonogo.hazards.zero3._partitioned import ZERO3_WORDS, told_by, written, zero3

_EMPTY = Pattern(
    r"'weight' must be 2-?D|with size 0\b|torch\.Size\(\[0\]\)|\(0\)|\[0\]|\[-1, 0\]|input of size 0\b"
    r"|Padding_idx must be"
    r"|expected to be in range of \[-1, 0\]|fewer than 2 dimensions|ds_\w+"
)
_NO_VOCABULARY = Pattern(r"shape '\[-1, 0\]' is invalid for input of size [1-9]")
_SAID = Pattern(
    r"(?i)(?:embedding_?size|embeddings?\(?\)?\.weight\.shape\[0\]|vocab_size|embedding size)[`'\"]?(?: (?:of|is|as"
    r"|becomes|to|set to)"
    r"|为|变为|变成|等于|[ =:])* ?0(?:[^.\d]|\.?$|\.\s)"
    r"|sets? (?:the )?(?:lm[_ ]head|vocab_size|embedding).{0,20} to 0\b"
)
_FAILS = Pattern(
    r"(?i)\w*resiz\w*.{0,80}(?:fail|error|empty|\b0\b).{0,120}zero-?3"
    r"|zero-?3.{0,120}resiz\w*.{0,80}(?:fail|error|empty|\b0\b)"
)
_RESIZES = Pattern(
    r"(?i)resize_token_embeddings|resiz\w+ (?:the )?(?:token )?embedding|resize_embedding|扩充词表|扩展词表|扩词表"
)


class ResizeEmbeddings(Hazard):
    """`resize_token_embeddings` under ZeRO-3 reads the size of a partitioned, empty weight.

    ## What happens
    After tokens are added, `model.config.vocab_size` is 0 and the loss raises "shape '[-1, 0]' is invalid for input of
    size 32705022"; or `resize_token_embeddings` itself fails, since `embedding.weight.shape[0]` is 0.

    ## Why
    Under ZeRO-3 the weight is partitioned and has shape [0] until it is gathered. transformers 4.32 and 4.33, and again
    4.43.0 to 4.43.2, took the new size of the vocabulary and of the head from it; frameworks and scripts that resize
    embeddings by themselves do so too.

    ## Cure
    Upgrade transformers. In code of your own read and write the embedding only inside `with
    deepspeed.zero.GatheredParameters(embedding.weight, modifier_rank=0):`, and take sizes from `num_embeddings` or
    `len(tokenizer)`. Or resize once without ZeRO-3, save the model and train that.

    ## When it is safe
    No resize, or one done before ZeRO-3 is on; ZeRO-2 and lower.

    ## Sources
    - https://github.com/huggingface/transformers/issues/25982: embedding size 0 after the resize
    - https://github.com/huggingface/transformers/issues/26398: vocab_size 0, and shape '[-1, 0]'
    - https://github.com/huggingface/transformers/pull/26024: the head's size
    - https://github.com/huggingface/transformers/pull/32214: the regression of 4.43
    """

    page_zh = """ZeRO-3 下 `resize_token_embeddings` 读取了已分区的空权重的大小。

    ## 现象
    添加 token 后 `model.config.vocab_size` 为 0，损失抛出 “shape '[-1, 0]' is invalid for input of size 32705022”；或
    `resize_token_embeddings` 本身失败，因为 `embedding.weight.shape[0]` 为 0。

    ## 原因
    ZeRO-3 下权重已分区，聚合之前形状为 [0]。transformers 4.32 与 4.33，以及 4.43.0 至 4.43.2，从它取得词表和输出头的新
    大小；自行调整 embedding 的框架和脚本也会如此。

    ## 解决办法
    升级 transformers。自己的代码只应在 `with deepspeed.zero.GatheredParameters(embedding.weight, modifier_rank=0):` 中
    读写 embedding，大小取自 `num_embeddings` 或 `len(tokenizer)`。或先在不启用 ZeRO-3 时调整一次并保存，再训练该模型。

    ## 何时安全
    不调整，或在启用 ZeRO-3 之前调整；ZeRO-2 及以下。

    ## 来源
    - https://github.com/huggingface/transformers/issues/25982：调整后 embedding 大小为 0
    - https://github.com/huggingface/transformers/issues/26398：vocab_size 为 0，以及 shape '[-1, 0]'
    - https://github.com/huggingface/transformers/pull/26024：输出头的大小
    - https://github.com/huggingface/transformers/pull/32214：4.43 的回归
    """

    name = "zero3-resize-embeddings"
    title = Text(
        en="The embeddings are resized by the size of an empty ZeRO-3 weight",
        zh="按 ZeRO-3 的空权重的大小调整了 embedding",
    )
    sources = (
        "https://github.com/huggingface/transformers/issues/25982",
        "https://github.com/huggingface/transformers/issues/26398",
        "https://github.com/huggingface/transformers/pull/26024",
        "https://github.com/huggingface/transformers/pull/32214",
    )
    log_words = (
        *ZERO3_WORDS,
        *EMPTY_WORDS,
        "resize_token_embeddings",
        "embedding_size",
        "vocab_size",
        "resize_embedding",
    )

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
        """An empty weight in what resizes embeddings, a vocabulary of 0, or words that say so."""
        on = zero3(log)
        if on is False:
            return
        found: list[tuple[LoggedError | Found, Certainty]] = []
        for error in log.errors_of("RuntimeError", "IndexError", "AssertionError", "ValueError", "AttributeError"):
            if error.passes(*RESIZING):
                if _EMPTY.search(error.message):
                    found.append((error, Certainty.CERTAIN if on else Certainty.LIKELY))
                elif on:
                    found.append((error, Certainty.LIKELY))
        if evidence := told_by(log, _NO_VOCABULARY, "RuntimeError"):
            found.append((evidence, Certainty.CERTAIN if on and log.find(_RESIZES) else Certainty.LIKELY))
        elif line := self._in_words(log, on is True):
            found.append((line, Certainty.LIKELY))
        for one, certainty in found:
            yield self.log_finding(
                one,
                Text(
                    en="Under ZeRO-3 the embedding's weight is partitioned and has shape [0]; resizing took the new "
                    "size from it, or wrote to it, without gathering it.",
                    zh="ZeRO-3 下 embedding 权重已分区，形状为 [0]；调整大小时没有聚合就从它取得新的大小或向它写入。",
                ),
                cure=(
                    Text(
                        "Upgrade transformers (fixed by PR #26024 and, for 4.43, #32214)",
                        "升级 transformers（由 PR #26024 修复；4.43 由 #32214 修复）",
                    ),
                    Text(
                        "In code of your own use deepspeed.zero.GatheredParameters(embedding.weight, "
                        "modifier_rank=0); or resize once without ZeRO-3 and save",
                        "自己的代码请使用 deepspeed.zero.GatheredParameters(embedding.weight, modifier_rank=0)；或在不"
                        "启用 ZeRO-3 时调整一次并保存",
                    ),
                ),
                certainty=certainty,
                confirm=(
                    Text(
                        "model.config.vocab_size prints 0 after resize_token_embeddings",
                        "resize_token_embeddings 之后 model.config.vocab_size 打印为 0",
                    ),
                ),
            )

    def _in_words(self, log: FailureLog, on: bool) -> Found | None:
        """A reporter's line that says that the size became 0."""
        resizes = log.find(_RESIZES)
        if (line := log.find(_SAID)) and (on or resizes):
            return line
        if on and not log.errors and (line := written(log, _FAILS)):
            return line
        return resizes if on and not log.errors and log.has("torch.Size([0])") else None
