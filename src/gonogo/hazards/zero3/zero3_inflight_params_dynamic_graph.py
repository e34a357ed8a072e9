import ast

from gonogo.hazards.facts.zero_usage import (
    is_inside_module_class,
    is_under_zero_condition,
    mentions_self,
    source_text,
    stage_span,
)
from gonogo.hazards.rule import FailureLog, Findings, Hazard, Run, Script, translated
from gonogo.hazards.zero3._inflight import InflightCause, find_inflight_error


class Zero3InflightParamsDynamicGraph(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A module that a forward runs only by chance: dropped layers, stochastic depth."""
        if run.zero_stage != 3 or b"rand" not in script.source.data or b"nn.Module" not in script.source.data:
            return
        for node in script.nodes(ast.Call):
            function = script.enclosing_function(node)
            if function is None or function.name != "forward" or not is_inside_module_class(script, node):
                continue
            tests = script.guarded_by(node)
            if not tests or not _runs_a_module(script, node) or is_under_zero_condition(script, node):
                continue
            chance = next((one for one in tests if _is_random(script, one)), None)
            if chance is None:
                continue
            yield self.finding(
                self.texts["cause_in_script"].format(call=source_text(script, node, 50), test=ast.unparse(chance)[:60]),
                cure=(
                    translated(
                        "Run the module in every step: instead of skipping it at random, multiply its output "
                        "by a random 0 or 1"
                    ),
                    translated('Or draw the same numbers on all ranks, and set "stage3_prefetch_bucket_size": 0'),
                ),
                spans=(
                    script.place(node).span(),
                    script.place(chance).span(translated("chance decides whether this runs")),
                    stage_span(run),
                ),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """Parameters in flight that a pass in evaluation mode doesn't explain."""
        found = find_inflight_error(log)
        if found is None or InflightCause.DYNAMIC not in found[1]:
            return
        evidence, causes = found
        yield self.log_finding(evidence, certainty=causes[InflightCause.DYNAMIC], confirm=self.texts["confirm"])


_RANDOM_FUNCTIONS = (
    "random.random",
    "random.uniform",
    "numpy.random.rand",
    "numpy.random.random",
    "torch.rand",
    "torch.bernoulli",
    "numpy.random.uniform",
    "torch.randint",
    "random.randint",
    "random.choice",
)


def _is_random(script: Script, test: ast.expr) -> bool:
    return any(
        isinstance(each, ast.Call) and script.call_at(each).name in _RANDOM_FUNCTIONS
        for each in ast.walk(test)
        if each in script.index.parents
    )


def _runs_a_module(script: Script, node: ast.Call) -> bool:
    """Whether a call runs ``self.something``, or a layer that a loop takes from ``self.layers``."""
    func = node.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self":
        info = script.enclosing_class(node)
        return info is not None and func.attr not in info.methods and not func.attr.startswith("_")
    if isinstance(func, ast.Name):
        loop = script.enclosing_loop(node)
        while isinstance(loop, ast.For):
            names = [each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)]
            if func.id in names and mentions_self(loop.iter):
                return True
            loop = script.enclosing_loop(loop)
    return False
