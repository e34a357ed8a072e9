import ast

from gonogo.evidence.script.nodes import dotted_name
from gonogo.hazards.facts.training_script import first_argument
from gonogo.hazards.rule import Findings, Fix, Hazard, Run, Script, translated


class FsdpOptimizerMadeBeforeWrapping(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``Optimizer(model.parameters())`` above ``model = FSDP(model)`` in the same function."""
        if b"FullyShardedDataParallel" not in script.source.data:
            return
        for wrap in script.calls("*.FullyShardedDataParallel"):
            model, statement = first_argument(wrap, "module"), script.statement(wrap.node)
            kept = wrap.keyword("use_orig_params")
            if not isinstance(model, ast.Name) or statement is None:
                continue
            if not kept.absent and kept.truth is not False:
                continue
            for call in script.calls("torch.optim.*"):
                made, given = script.statement(call.node), first_argument(call, "params")
                own = isinstance(given, ast.Call) and dotted_name(given.func) == f"{model.id}.parameters"
                same = script.enclosing_function(call.node) is script.enclosing_function(wrap.node)
                if not own or not same or call.line >= wrap.line or made is None or ".lr_scheduler" in call.name:
                    continue
                yield self.finding(
                    self.texts["cause"].format(optimizer=call.method, model=model.id),
                    spans=(call.place.span(), wrap.place.span(translated("FSDP wraps the model only here"))),
                    fixes=_move_after_wrapping(self, script, made, statement),
                )


def _move_after_wrapping(
    hazard: Hazard, script: Script, optimizer_statement: ast.stmt, wrapping_statement: ast.stmt
) -> tuple[Fix, ...]:
    """Move the optimizer's statement after the wrapping one if nothing in between needs it."""
    target = optimizer_statement.targets[0] if isinstance(optimizer_statement, ast.Assign) else None
    if not isinstance(target, ast.Name) or script.parent(optimizer_statement) is not script.parent(wrapping_statement):
        return ()
    between = [
        node
        for node in script.nodes(ast.Name)
        if node.id == target.id
        and (optimizer_statement.end_lineno or 0) < node.lineno <= (wrapping_statement.end_lineno or 0)
    ]
    edits = (
        script.removing_statement(optimizer_statement),
        script.inserting_after(wrapping_statement, script.place(optimizer_statement).text),
    )
    if between or any(edit is None for edit in edits):
        return ()
    title = translated("Create the optimizer after wrapping")
    return (hazard.fix(title, *(edit for edit in edits if edit is not None), safe=False),)
