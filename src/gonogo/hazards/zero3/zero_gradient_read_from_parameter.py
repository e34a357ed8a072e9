import ast

from gonogo.hazards.facts.zero_usage import (
    dotted_name_or_empty,
    find_module_of_parameters,
    is_engine,
    is_trained,
    is_under_zero_condition,
    root_of,
    source_text,
    stage_span,
)
from gonogo.hazards.rule import Findings, Hazard, Run, Script, translated


class ZeroGradientReadFromParameter(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``p.grad`` in a loop over the parameters of an engine, after its backward."""
        if run.zero_stage not in (1, 2, 3) or b".grad" not in script.source.data:
            return
        if next(script.calls("deepspeed.initialize"), None) is None:
            return
        seen: set[int] = set()
        for node in script.nodes(ast.Attribute):
            if node.attr != "grad" or not isinstance(node.ctx, ast.Load) or not isinstance(node.value, ast.Name):
                continue
            loop = _iterable_of(script, node.value)
            module = find_module_of_parameters(script, loop) if loop is not None else None
            if loop is None or module is None or loop.lineno in seen or is_under_zero_condition(script, node):
                continue
            root = root_of(module)
            if not is_engine(script, root) and not is_trained(script, dotted_name_or_empty(root)):
                continue
            function = script.enclosing_function(node)
            before = [one for one in script.calls("*.backward") if one.line < node.lineno]
            if not any(script.enclosing_function(one.node) is function for one in before):
                continue
            seen.add(loop.lineno)
            yield self.finding(
                self.texts["cause"].format(code=source_text(script, node), stage=run.zero_stage),
                spans=(
                    script.place(node).span(),
                    script.place(loop).span(translated("the engine's parameters")),
                    stage_span(run),
                ),
            )


def _iterable_of(script: Script, name: ast.Name) -> ast.expr | None:
    """The iterable of the loop or comprehension whose variable ``name`` is; None if there is none."""
    for each in script.ancestors(name):
        loops = each.generators if isinstance(each, (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)) else []
        for loop in [each] if isinstance(each, ast.For) else loops:
            if any(isinstance(one, ast.Name) and one.id == name.id for one in ast.walk(loop.target)):
                return loop.iter
    return None
