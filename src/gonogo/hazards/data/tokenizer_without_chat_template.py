import ast

from gonogo.hazards.facts.training_script import mentions
from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class TokenizerWithoutChatTemplate(LoggedHazard):
    """The data are conversations, and the tokenizer has no chat template.
    ## What happens
    "ValueError: Cannot use chat template functions because tokenizer.chat_template is not set and no template argument
    was passed!", while the data are tokenized (TRL, OpenRLHF's `--apply_chat_template`, unsloth) or when the first
    prompt is sent to the rollout engine. axolotl: "chat_template choice is tokenizer_default but tokenizer's
    chat_template is null".
    ## Why
    Base models come without one; only their Instruct or Chat releases have it. Since transformers 4.44 there is no
    default that stands in. A checkpoint of an earlier stage has it only where the tokenizer with the template was saved
    there, and newer releases keep it in a file of its own, `chat_template.jinja`, which is easily left behind when
    files are copied.
    ## Example
    ```python
    tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
    text = tokenizer.apply_chat_template(messages, tokenize=False)    # wrong: a base model, which has no template
    tokenizer.chat_template = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B-Instruct").chat_template  # right
    ```
    ## Cure
    Set one before the data are tokenized: `tokenizer.chat_template = …`, TRL's `clone_chat_template`, or
    `chat_template_path` in SFTConfig; or take the Instruct model. With a checkpoint of your own: save the tokenizer
    that has it, and copy chat_template.jinja.
    ## When it is safe
    With plain text, or prompts and completions as text.
    ## Sources
    - https://github.com/huggingface/open-r1/issues/85: SFT of a base model
    - https://github.com/OpenRLHF/OpenRLHF/issues/823: DPO on a checkpoint that was saved without one
    - https://github.com/sgl-project/sglang/issues/3385: base models have none
    - https://github.com/axolotl-ai-cloud/axolotl/pull/2398: axolotl's words
    """

    name = "tokenizer-without-chat-template"
    title = Text("The tokenizer has no chat template", "tokenizer 没有对话模板")
    log_words = ("chat_template",)
    anywhere = True
    ends_at = (("transformers/tokenization_utils_base.py", "get_chat_template"),)
    signs = (
        Sign(
            Pattern(
                r"Cannot use (?:apply_chat_template\(\)|chat template functions) because tokenizer\.chat_template is "
                r"not set"
            ),
            Certainty.CERTAIN,
            types=("ValueError",),
            lines=False,
        ),
        Sign(Pattern(r"chat_template is not set and no template argument was passed|chat_template is null")),
    )
    cause = Text(
        "A conversation was given to a tokenizer without a chat template: that of a base model, or of a checkpoint "
        "that was saved without it.",
        "把对话交给了没有对话模板的 tokenizer：它属于基座模型，或来自未保存模板的 checkpoint。",
    )
    cures = (
        Text(
            "Set one before the data are tokenized: tokenizer.chat_template = …, TRL's clone_chat_template or "
            "chat_template_path; or take the Instruct model",
            "在 tokenize 数据之前设置：tokenizer.chat_template = …，TRL 的 clone_chat_template 或 chat_template_path；"
            "或改用 Instruct 模型",
        ),
        Text(
            "With a checkpoint of your own: copy chat_template.jinja and tokenizer_config.json of the model it came "
            "from",
            "对自己的 checkpoint：从其来源模型复制 chat_template.jinja 与 tokenizer_config.json",
        ),
    )
    confirm = Text("tokenizer.chat_template is None", "tokenizer.chat_template 为 None")

    def in_script(self, script: Script, run: Run) -> Findings:
        """A published base model's tokenizer that is given conversations, and no word of a template in the scripts."""
        if b"apply_chat_template" not in script.source.data or mentions(run, script, *_SET):
            return
        for load in script.calls("*Tokenizer*.from_pretrained"):
            name, statement = load.argument(0).string, script.statement(load.node)
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if name is None or not isinstance(target, ast.Name) or not _is_known_without(name):
                continue
            used = next((call for call in script.index.calls if _applies(call, target.id)), None)
            if used is None:
                continue
            yield self.finding(
                Text(
                    "{name} is published without a chat template, and its tokenizer is given conversations.",
                    "{name} 发布时不带对话模板，而其 tokenizer 被用于对话。",
                ).format(name=name),
                certainty=Certainty.LIKELY,
                cure=self.cures[0],
                spans=(script.place(used).span(), load.place.span(Text("loaded here", "在此处加载"))),
                confirm=self.confirm,
            )


_SET = (
    *(b".chat_template =", b"chat_template=", b"setup_chat_format", b"clone_chat_template", b"get_chat_template"),
    *(b"chat_template_path", b'"chat_template"', b"'chat_template'", b"chat_template,"),
)
"""What sets a template, or passes one."""


def _is_known_without(name: str) -> bool:
    """Whether a published model of that name has no chat template."""
    import re

    from gonogo.evidence.published.models import published_model, tokenizer_layout

    model = published_model(name)
    if model is None or model.tokenizer is None:
        return False
    layout = tokenizer_layout(model.tokenizer)
    if layout.template is None:
        return True
    return layout.templated is not None and re.search(layout.templated, model.name) is None


def _applies(call: ast.Call, name: str) -> bool:
    """``tokenizer.apply_chat_template(…)``, without a template of its own."""
    own = isinstance(call.func, ast.Attribute) and call.func.attr == "apply_chat_template"
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    return own and isinstance(of, ast.Name) and of.id == name and len(call.args) < 3
