from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class ChatTemplateWithoutGenerationBlocks(LoggedHazard):
    """Only the assistant's words are to be trained on, and the chat template does not mark them.
    ## What happens
    "RuntimeError: You're using `assistant_only_loss=True`, but at least one example has no assistant tokens", or
    newer "ValueError: The chat template is not training-compatible (missing prefix-preservation or
    `{% generation %}` markers)", while SFTTrainer is made.
    ## Why
    With `assistant_only_loss=True` the tokenizer says which tokens are the assistant's, by the blocks
    `{% generation %}…{% endgeneration %}` of its chat template. Most published templates have none. TRL has
    templates with them for some families, which it takes where the template is the published one; not for a
    template of your own.
    ## Example
    ```jinja
    {{ message.content }}                                             {# wrong #}
    {% generation %}{{ message.content }}{{ eos }}{% endgeneration %}      {# right #}
    ```
    ## Cure
    Put the assistant's content, with its end token, between `{% generation %}` and `{% endgeneration %}` in the
    template; or leave `assistant_only_loss` out; or give prompt and completion as two columns, of which only the
    completion is trained on.
    ## When it is safe
    With `assistant_only_loss=False`, and with data of prompt and completion.
    ## Sources
    - https://github.com/QwenLM/Qwen3/issues/1522: Qwen3's template has no such blocks
    - https://github.com/huggingface/trl/issues/4879: the blocks, added to templates
    - https://github.com/huggingface/trl/pull/3586: what assistant_only_loss needs
    """

    name = "chat-template-without-generation-blocks"
    title = Text("The chat template does not mark the assistant's words", "聊天模板没有标记助手的回复")
    log_words = ("assistant_only_loss", "not training-compatible")
    signs = (
        Sign(
            Pattern(r"using `assistant_only_loss=True`, but at least one example has no assistant tokens"),
            Certainty.LIKELY,
        ),
        Sign(
            Pattern(r"The chat template is not training-compatible \(missing prefix-preservation or"),
            Certainty.CERTAIN,
            cause=Text(
                "assistant_only_loss=True needs a chat template with {opening} blocks that keeps what came before; "
                "this one does not, and TRL has no other for it.",
                "assistant_only_loss=True 要求聊天模板带有 {opening} 块且不改写之前的内容；此模板不满足，TRL 也没有"
                "可替换的版本。",
            ).format(opening="{% generation %}"),
        ),
    )
    cause = Text(
        "assistant_only_loss=True trains on what the chat template marks as the assistant's ({opening} blocks), and in "
        "an example it marks nothing.",
        "assistant_only_loss=True 只训练聊天模板标记为助手的内容（{opening} 块），而某个样本中没有任何标记。",
    ).format(opening="{% generation %}")
    cures = (
        Text(
            "Put the assistant's content and its end token between {opening} and {closing} in the chat template",
            "在聊天模板中把助手的内容及其结束符放在 {opening} 与 {closing} 之间",
        ).format(opening="{% generation %}", closing="{% endgeneration %}"),
        Text(
            "Or assistant_only_loss=False; or data with the columns prompt and completion, of which only the "
            "completion is trained on",
            "或 assistant_only_loss=False；或使用 prompt、completion 两列的数据，只训练 completion",
        ),
    )
