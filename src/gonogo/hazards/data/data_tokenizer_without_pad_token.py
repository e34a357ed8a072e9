import ast

from gonogo.hazards.facts.training_script import run_mentions
from gonogo.hazards.rule import Findings, Hazard, Run, Script, translated

# Models on the hub whose tokenizers name no pad token.
_MODELS_WITHOUT_PAD_TOKEN = (
    *(
        "gpt2",
        "openai-community/gpt2",
        "distilgpt2",
        "meta-llama/llama-2",
        "meta-llama/meta-llama-3",
        "meta-llama/llama-3",
    ),
    *("mistralai/mistral-7b", "mistralai/mixtral", "eleutherai/gpt-", "eleutherai/pythia", "tiiuae/falcon"),
)


class DataTokenizerWithoutPadToken(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A known model's tokenizer that pads, while no script of the run sets a pad token."""
        if b"padding=" not in script.source.data or run_mentions(run, script, b"pad_token", b"[PAD]", b"<pad>"):
            return
        for load in script.calls("*Tokenizer*.from_pretrained"):
            name, statement = load.argument(0).string, script.statement(load.node)
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if (
                name is None
                or not name.lower().startswith(_MODELS_WITHOUT_PAD_TOKEN)
                or not isinstance(target, ast.Name)
            ):
                continue
            padding_call = next(
                (call for call in script.index.calls if _is_padding_call(script, call, target.id)), None
            )
            if padding_call is None or statement is None:
                continue
            edit = script.inserting_after(statement, f"{target.id}.pad_token = {target.id}.eos_token")
            yield self.finding(
                translated("{name} has no pad token, but the tokenizer is asked to pad.").format(name=name),
                cure=translated("After loading: {name}.pad_token = {name}.eos_token").format(name=target.id),
                spans=(script.place(padding_call).span(), load.place.span(translated("loaded here"))),
                fixes=self.fix(translated("Pad with the EOS token"), edit, safe=False) if edit is not None else None,
            )


def _is_padding_call(script: Script, call: ast.Call, name: str) -> bool:
    """Whether a call is ``tokenizer(…, padding=True)`` or the like."""
    own = isinstance(call.func, ast.Name) and call.func.id == name
    padding = next((one.value for one in call.keywords if one.arg == "padding"), None)
    return own and padding is not None and script.field(padding).value in (True, "longest", "max_length")
