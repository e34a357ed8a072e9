import ast

from gonogo.evidence.script.nodes import dotted_name
from gonogo.hazards.facts.training_script import calls_that_train, creating_calls, is_trainer, run_mentions
from gonogo.hazards.rule import Findings, Hazard, Run, Script, translated

# Code that makes parameters trainable, or adds trainable ones.
_TRAINABLE_WORDS = (
    *(b"requires_grad = True", b"requires_grad=True", b"requires_grad_(True)", b"requires_grad_()", b"peft", b"lora"),
    *(b"LoRA", b"Adapter", b"adapter", b"unfreeze", b"Parameter(", b"nn.Linear", b"add_module", b"setattr(", b"swift"),
    *(b"ForSequenceClassification", b"ForTokenClassification", b".requires_grad = ("),
)


class AllParametersFrozen(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``requires_grad = False`` for all parameters of the trained model, with no code that unfreezes any."""
        if b"requires_grad" not in script.source.data or run_mentions(run, script, *_TRAINABLE_WORDS):
            return
        freezing: dict[str, ast.stmt | None] | None = None
        for call, node in calls_that_train(script):
            # Engines and DDP also wrap models that are frozen on purpose: teachers and references.
            if not isinstance(node, ast.Name) or not is_trainer(call) or not creating_calls(script, node):
                continue
            if freezing is None:
                freezing = _freezing_statements(script)
            frozen = freezing.get(node.id)
            if frozen is None or frozen.lineno > call.line or script.guarded_by(frozen):
                continue
            if script.enclosing_function(frozen) is not script.enclosing_function(call.node):
                continue
            yield self.finding(
                translated("All of {name} is frozen, and nothing is made trainable before {call} trains it.").format(
                    name=node.id, call=call.method
                ),
                spans=(
                    script.first_line_place(frozen).span(),
                    script.place(call.node.func).span(translated("trained here")),
                ),
            )
            return


def _freezing_statements(script: Script) -> dict[str, ast.stmt | None]:
    """Statements like ``model.requires_grad_(False)`` or ``for p in model.parameters(): p.requires_grad = False``.

    The key is the name of the model; None where a model's first such loop does something else.
    """
    found: dict[str, ast.stmt | None] = {}
    for call in script.index.calls:
        func = call.func
        if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name) or func.value.id in found:
            continue
        statement = script.statement(call)
        alone = isinstance(statement, ast.Expr) and statement.value is call
        if func.attr == "requires_grad_" and alone and call.args and script.field(call.args[0]).value is False:
            found[func.value.id] = statement
        elif func.attr == "parameters" and isinstance(statement, ast.For) and statement.iter is call:
            target = statement.target
            if isinstance(target, ast.Name) and len(statement.body) == 1:
                freezes = _freezes_parameter(script, statement.body[0], target.id)
                found[func.value.id] = statement if freezes else None
    return found


def _freezes_parameter(script: Script, statement: ast.stmt, name: str) -> bool:
    """Whether a statement freezes parameter ``name``: ``p.requires_grad = False`` or ``p.requires_grad_(False)``."""
    if isinstance(statement, ast.Assign):
        target, value = dotted_name(statement.targets[0]), statement.value
        return target == f"{name}.requires_grad" and script.field(value).value is False
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or dotted_name(call.func) != f"{name}.requires_grad_" or not call.args:
        return False
    return script.field(call.args[0]).value is False
