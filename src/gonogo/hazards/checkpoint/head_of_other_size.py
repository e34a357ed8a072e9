from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_PARTITIONED = Pattern(r"torch\.Size\(\[0\]\)")
"""A shape of ZeRO-3's: no matter of heads."""


class HeadOfOtherSize(LoggedHazard):
    """A pretrained head has another number of classes than the model is made with.
    ## What happens
    "RuntimeError: You set `ignore_mismatched_sizes` to `False`, thus raising an error", or "size mismatch for
    classifier.weight: copying a param with shape torch.Size([1000, 768]) from checkpoint, the shape in current
    model is torch.Size([10, 768])", in `from_pretrained`.
    ## Why
    `num_labels` (or `vocab_size`) makes the last layer anew, and the checkpoint holds the one that it was
    trained with. transformers loads no weight of another shape unless it is told to draw such weights anew.
    ## Example
    ```python
    ViTForImageClassification.from_pretrained(name, num_labels=10)                                  # wrong
    ViTForImageClassification.from_pretrained(name, num_labels=10, ignore_mismatched_sizes=True)    # right
    ```
    ## Cure
    `ignore_mismatched_sizes=True` where only the head differs: it is drawn anew and trained. Where other
    weights are in the report too, the config is not that of the checkpoint: correct it. Of a language model,
    load with the checkpoint's vocabulary and resize afterwards (`resize_token_embeddings`).
    ## When it is safe
    Where the checkpoint has no head (a base model), which is drawn anew with a warning.
    ## Sources
    - https://huggingface.co/docs/transformers/main_classes/model: ignore_mismatched_sizes
    - https://github.com/huggingface/transformers/pull/12664: where the option comes from
    """

    name = "head-of-other-size"
    title = Text("A pretrained weight has another shape than the model's", "预训练权重的形状与模型不同")
    log_words = ("ignore_mismatched_sizes",)
    signs = (
        Sign(Pattern(r"You set `ignore_mismatched_sizes` to `False`, thus raising an error"), unless=_PARTITIONED),
        Sign(Pattern(r"You may consider adding `ignore_mismatched_sizes=True`"), unless=_PARTITIONED),
    )
    yields_to = ("zero3-saved-empty-weights", "zero3-load-into-partitioned-model")
    cause = Text(
        "Weights of the checkpoint have other shapes than those of the model that is made: mostly the "
        "head, by num_labels.",
        "检查点中的权重与所创建模型的形状不同：多为由 num_labels 决定的分类头。",
    )
    cures = (
        Text(
            "from_pretrained(…, ignore_mismatched_sizes=True) where only the head is in the report: it is drawn anew",
            "仅分类头出现在报告中时：from_pretrained(…, ignore_mismatched_sizes=True)，分类头会重新初始化",
        ),
        Text("Where others are too: take the checkpoint's own config", "若还有其他权重：使用检查点自己的配置"),
    )
    confirm = Text(
        "The report names the weights and both shapes: only the head, or others too",
        "报告列出权重及两种形状：只有分类头，还是也有其他权重",
    )
