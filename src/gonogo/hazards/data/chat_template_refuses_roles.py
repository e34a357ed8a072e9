from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class ChatTemplateRefusesRoles(LoggedHazard):
    """The model's chat template does not take the order of roles, or the system message, that the data have.
    ## What happens
    "jinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant/user/assistant/...", "System role
    not supported", "After the optional system message, conversation roles must alternate user and assistant", from
    `apply_chat_template`, while the data are tokenized.
    ## Why
    The template is a program that comes with the tokenizer, and some refuse what their model was not trained on:
    Mistral and Gemma want user and assistant in turn, Gemma 2 no system message, others no tool messages. Rows with
    two user messages after each other, that begin with the assistant, or are empty, are refused. A tokenizer that was
    saved by a former stage may carry another template than the base model's.
    ## Example
    ```json
    [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    ```
    ## Cure
    Join neighbouring messages of one role, put the system text in front of the first user message, drop rows that don't
    begin with the user. Or give the tokenizer a template that takes them (`tokenizer.chat_template = …`; trl's
    chat_template_path).
    ## When it is safe
    Where `tokenizer.apply_chat_template(row["messages"])` works for every row.
    ## Sources
    - https://github.com/huggingface/smol-course/issues/260: user, assistant, user, user in the data, with Gemma's
      template
    - https://github.com/huggingface/alignment-handbook/issues/93: the template that an earlier stage saved
    - https://github.com/FasterDecoding/Medusa/issues/102: the frames
    """

    name = "chat-template-refuses-roles"
    title = Text("The chat template does not take the data's roles", "对话模板不接受数据中的角色顺序")
    log_words = ("must alternate", "ystem role not", "ole is not supported", "TemplateError")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"(?i)roles must alternate|system role (?:is )?not (?:supported|allowed)|only user(?:, system)?,? "
                r"(?:and|or) "
                r"assistant roles are (?:supported|allowed)|unknown role|unexpected (?:message )?role|invalid role"
                r"|conversation must start with a user|no user query found in messages"
            ),
            Certainty.CERTAIN,
            types=("TemplateError", "UndefinedError"),
        ),
        Sign(Pattern(r"(?i)TemplateError: .{0,80}(?:alternate|role)|roles must alternate user/assistant")),
        Sign(Pattern(r"TemplateError"), Certainty.POSSIBLE, frames=(("apply_chat_template", "render_jinja_template"),)),
    )
    cause = Text(
        "The chat template of the tokenizer raised: it does not take the roles of a row in the order they have.",
        "tokenizer 的对话模板抛出异常：它不接受某一行中角色的顺序。",
    )
    cures = (
        Text(
            "Join neighbouring messages of one role, move a system text into the first user message, drop rows "
            "that don't "
            "begin with the user",
            "合并相邻的同角色消息，把 system 内容并入第一条 user 消息，去掉不以 user 开头的行",
        ),
        Text(
            "Or use a template that takes them: tokenizer.chat_template = …, or the base model's tokenizer",
            "或使用接受它们的模板：tokenizer.chat_template = …，或基座模型的 tokenizer",
        ),
    )
    confirm = Text(
        "tokenizer.apply_chat_template raises for that row alone", "仅对该行调用 tokenizer.apply_chat_template 也会报错"
    )
