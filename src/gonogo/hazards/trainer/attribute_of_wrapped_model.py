import ast

from gonogo.evidence.patterns import Match
from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script, Text, translated

_MODEL_ATTRIBUTES = (
    "generate",
    "save_pretrained",
    "config",
    "resize_token_embeddings",
    "gradient_checkpointing_enable",
    "dtype",
)
_WRAPPER_CLASSES = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel",
)


class AttributeOfWrappedModel(LoggedHazard):
    def format_cause(self, match: Match | None) -> Text:
        """The page's cause with the wrapper and the attribute filled in."""
        words = match.groupdict() if match is not None else {}
        return self.cause.format(wrapper=words.get("wrapper") or "?", attribute=words.get("attribute") or "?")

    def in_script(self, script: Script, run: Run) -> Findings:
        """Attributes that only Hugging Face models have, read from a variable that only ever holds the wrapper."""
        if b"DataParallel(" not in script.source.data and b"DDP(" not in script.source.data:
            return
        made = {}
        for call in script.calls(*_WRAPPER_CLASSES):
            statement = script.statement(call.node)
            if isinstance(statement, ast.Assign) and statement.value is call.node:
                made.update({target.id: call for target in statement.targets if isinstance(target, ast.Name)})
        for call in script.calls(*(f"*.{name}" for name in _MODEL_ATTRIBUTES)):
            func = call.node.func
            if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name) or func.value.id not in made:
                continue
            wrapper = made[func.value.id]
            same = script.enclosing_function(call.node) is script.enclosing_function(wrapper.node)
            guarded = any(True for _ in script.guarded_by(wrapper.node))
            if not same or guarded or call.node.lineno < wrapper.node.lineno:
                continue
            yield self.finding(
                self.cause.format(wrapper="DistributedDataParallel", attribute=func.attr),
                certainty=Certainty.LIKELY,
                cure=self.cures[:1],
                spans=(call.place.span(), wrapper.place.span(translated("wrapped here"))),
            )
