from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class LlamafactoryTemplateUnknown(LoggedHazard):
    """The template that is asked for is not in the LLaMA-Factory that runs.
    ## What happens
    "ValueError: Template qwen3 does not exist.", raised in `get_template_and_fix_tokenizer` on every rank after the
    tokenizer was loaded.
    ## Why
    Templates come with releases, and are renamed by them (`gpt` became `gpt_oss`): the model's page or an example of
    the main branch names one that the installed release has not, or no longer. An installed package (site-packages)
    runs in place of the checkout that lies beside the command. Or the name is a model's, not a template's (`llama`,
    `qwen2`).
    ## Example
    ```yaml
    template: qwen2    # wrong: a model's name
    template: qwen    # right: the template of Qwen2
    ```
    ## Cure
    Take a name of the table of supported models in the README of that release; update LLaMA-Factory for a newer model:
    git pull, then pip install -e . in the checkout.
    ## When it is safe
    Where `python -c "from llamafactory.data.template import TEMPLATES; print(sorted(TEMPLATES))"` lists it.
    ## Sources
    - https://github.com/hiyouga/LlamaFactory/issues/7894: qwen3 with an installed release from before it
    - https://github.com/hiyouga/LlamaFactory/issues/9759: gpt, which 0.9.4 has under another name
    - https://github.com/hiyouga/LlamaFactory/issues/5453: a model's name in place of the template's
    - https://github.com/hiyouga/LlamaFactory/issues/3701: llama3 with a checkout from before it
    """

    name = "llamafactory-template-unknown"
    title = Text("This LLaMA-Factory has no such template", "该版本 LLaMA-Factory 没有这个模板")
    log_words = ("does not exist.",)
    ends_at = (("data/template.py", "get_template_and_fix_tokenizer"), ("template.py", "get_template"))
    traces = ('f"Template {',)
    signs = (
        Sign(
            Pattern(r"Template (?P<name>[\w.-]+) does not exist"), Certainty.CERTAIN, types=("ValueError",), lines=False
        ),
        Sign(Pattern(r"Template (?P<name>[\w.-]+) does not exist")),
    )
    cause = Text(
        "No template of the LLaMA-Factory that runs is named {name}.",
        "所运行的 LLaMA-Factory 中没有名为 {name} 的模板。",
    )
    cures = (
        Text(
            "Take a name of the table of supported models in that release's README: the template's, not the model's",
            "使用该版本 README 中支持模型表里的名称：是模板名，不是模型名",
        ),
        Text(
            "For a newer model update LLaMA-Factory (git pull; pip install -e .), and start the one that was updated",
            "模型较新时升级 LLaMA-Factory（git pull；pip install -e .），并确保启动的是升级后的那一份",
        ),
    )
    confirm = Text(
        "from llamafactory.data.template import TEMPLATES; sorted(TEMPLATES) doesn't list it",
        "from llamafactory.data.template import TEMPLATES; sorted(TEMPLATES) 中没有它",
    )
