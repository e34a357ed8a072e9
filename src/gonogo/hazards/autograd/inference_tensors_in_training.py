import ast
from bisect import bisect_right
from collections import defaultdict

from gonogo.evidence.script.identifiers import contains_words, last_name
from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script, translated


class InferenceTensorsInTraining(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A name bound under inference_mode that the same function passes to a model whose output it trains on."""
        if b"inference_mode" not in script.source.data or b".backward(" not in script.source.data:
            return
        uses: dict[ast.AST, _NameUses] = {}
        for call in script.calls("torch.inference_mode"):
            block = next((one for one in script.ancestors(call.node) if isinstance(one, ast.With)), None)
            around = script.enclosing_function(call.node)
            if block is None or around is None or all(item.context_expr is not call.node for item in block.items):
                continue
            if around not in uses:
                uses[around] = _NameUses(around)
            used = uses[around].first_model_call_after(block)
            if used is None or _is_under_no_grad(script, used):
                continue
            yield self.finding(
                certainty=Certainty.LIKELY,
                cure=self.cures[:2],
                spans=(call.place.span(), script.place(used).span(translated("used here"))),
                confirm=translated("The tensor reaches an operator that saves it for backward"),
            )


class _NameUses:
    """Where a function binds names, passes them to models, and trains."""

    def __init__(self, function: ast.AST) -> None:
        self.last_backward = 0
        self.last_bound: dict[str, int] = {}
        self.passed_to_models: dict[str, list[ast.Call]] = defaultdict(list)
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and node.attr == "backward":
                self.last_backward = max(self.last_backward, node.lineno)
            elif isinstance(node, ast.Assign):
                for name in _assigned_names(node):
                    self.last_bound[name] = max(self.last_bound.get(name, 0), node.lineno)
            elif isinstance(node, ast.Call):
                for name in _names_passed_to_model(node):
                    self.passed_to_models[name].append(node)
        for calls in self.passed_to_models.values():
            calls.sort(key=_line_number)

    def first_model_call_after(self, block: ast.With) -> ast.Call | None:
        """The first call after the block that passes a tensor bound in it to a model; None if no backward follows."""
        end = block.end_lineno or 0
        if self.last_backward <= end:
            return None
        found = []
        for name in {name for node in ast.walk(block) for name in _assigned_names(node)}:
            calls = self.passed_to_models.get(name, [])
            at = bisect_right(calls, end, key=_line_number)
            if self.last_bound[name] <= end and at < len(calls):
                found.append(calls[at])
        return min(found, key=_line_number, default=None)


def _line_number(node: ast.Call) -> int:
    return node.lineno


def _assigned_names(node: ast.AST) -> list[str]:
    """The plain names that an assignment binds."""
    targets = node.targets if isinstance(node, ast.Assign) else ()
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def _names_passed_to_model(call: ast.Call) -> list[str]:
    """The names that a call passes, unchanged, to a model."""
    callee = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = (*call.args, *(keyword.value for keyword in call.keywords)) if callee.endswith("model") else ()
    return [one.id for one in given if isinstance(one, ast.Name)]


def _is_under_no_grad(script: Script, node: ast.AST) -> bool:
    blocks = (one for one in script.ancestors(node) if isinstance(one, ast.With))
    names = (last_name(item.context_expr) for block in blocks for item in block.items)
    return any(contains_words(name, "no_grad", "inference_mode") for name in names)
