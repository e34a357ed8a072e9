import ast
from collections.abc import Iterator

from gonogo.evidence.script.identifiers import last_name, says
from gonogo.hazards.log_rule import LoggedHazard
from gonogo.hazards.rule import Certainty, Findings, Run, Script, translated


class InferenceTensorsInTraining(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A name bound under inference_mode that the same function passes to a model whose output it trains on."""
        if b"inference_mode" not in script.source.data or b".backward(" not in script.source.data:
            return
        for call in script.calls("torch.inference_mode"):
            block = next((one for one in script.ancestors(call.node) if isinstance(one, ast.With)), None)
            around = script.enclosing_function(call.node)
            if block is None or around is None or all(item.context_expr is not call.node for item in block.items):
                continue
            bound = {target.id for node in block.body for target in _targets(node)}
            later = [node for node in ast.walk(around) if getattr(node, "lineno", 0) > (block.end_lineno or 0)]
            if not any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in later):
                continue
            bound -= {target.id for node in later for target in _targets(node)}
            used = next((node for node in later if isinstance(node, ast.Call) and _passes_to_model(node, bound)), None)
            if used is None or _is_under_no_grad(script, used):
                continue
            yield self.finding(
                translated(
                    "Tensors created here in torch.inference_mode are then used in a forward pass that needs gradients."
                ),
                certainty=Certainty.LIKELY,
                cure=self.cures[:2],
                spans=(call.place.span(), script.place(used).span(translated("used here"))),
                confirm=translated("The tensor reaches an operator that saves it for backward"),
            )


def _targets(node: ast.AST) -> Iterator[ast.Name]:
    """The plain names that a statement, or any statement inside it, binds."""
    for one in ast.walk(node):
        if isinstance(one, ast.Assign):
            for target in one.targets:
                yield from (part for part in ast.walk(target) if isinstance(part, ast.Name))


def _passes_to_model(call: ast.Call, names: set[str]) -> bool:
    """Whether a call passes one of the names, unchanged, to a model."""
    callee = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = (*call.args, *(keyword.value for keyword in call.keywords))
    return callee.endswith("model") and any(isinstance(one, ast.Name) and one.id in names for one in given)


def _is_under_no_grad(script: Script, node: ast.AST) -> bool:
    blocks = (one for one in script.ancestors(node) if isinstance(one, ast.With))
    names = (last_name(item.context_expr) for block in blocks for item in block.items)
    return any(says(name, "no_grad", "inference_mode") for name in names)
