import ast

from gonogo.hazards.facts.training_script import run_mentions
from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script, translated


class TokenizerWithoutChatTemplate(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A published base model's tokenizer that gets conversations, while no script sets a chat template."""
        if b"apply_chat_template" not in script.source.data or run_mentions(run, script, *_TEMPLATE_SETTING_MARKERS):
            return
        for load in script.calls("*Tokenizer*.from_pretrained"):
            name, statement = load.argument(0).string, script.statement(load.node)
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if name is None or not isinstance(target, ast.Name) or not _has_no_published_template(name):
                continue
            used = next((call for call in script.index.calls if _applies_default_template(call, target.id)), None)
            if used is None:
                continue
            yield self.finding(
                self.texts["cause"].format(name=name),
                certainty=Certainty.LIKELY,
                cure=self.cures[0],
                spans=(script.place(used).span(), load.place.span(translated("loaded here"))),
            )


_TEMPLATE_SETTING_MARKERS = (
    *(b".chat_template =", b"chat_template=", b"setup_chat_format", b"clone_chat_template", b"get_chat_template"),
    *(b"chat_template_path", b'"chat_template"', b"'chat_template'", b"chat_template,"),
)
"""Code that sets a template or passes one."""


def _has_no_published_template(name: str) -> bool:
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


def _applies_default_template(call: ast.Call, name: str) -> bool:
    """Whether a call is ``tokenizer.apply_chat_template(…)`` without an explicit template."""
    own = isinstance(call.func, ast.Attribute) and call.func.attr == "apply_chat_template"
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    return own and isinstance(of, ast.Name) and of.id == name and len(call.args) < 3
