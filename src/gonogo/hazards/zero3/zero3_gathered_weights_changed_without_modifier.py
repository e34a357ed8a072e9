import ast
from collections.abc import Iterator

from gonogo.evidence.script.identifiers import same_code
from gonogo.hazards.facts.zero_usage import source_text, stage_span
from gonogo.hazards.rule import Findings, Hazard, Run, Script, translated

_IN_PLACE_METHODS = frozenset(
    {
        *("copy_", "fill_", "zero_", "normal_", "uniform_", "add_", "sub_", "mul_", "div_", "lerp_", "clamp_"),
        *("trunc_normal_", "index_copy_", "masked_fill_"),
    }
)


class Zero3GatheredWeightsChangedWithoutModifier(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """Writes to parameters that a ``GatheredParameters`` without ``modifier_rank`` has gathered."""
        if run.zero_stage != 3 or b"GatheredParameters" not in script.source.data:
            return
        for call in script.calls("*.GatheredParameters"):
            rank = call.keyword("modifier_rank")
            if (
                rank.unknown
                or (rank.known and rank.value is not None)
                or len(call.node.args) != 1
                or call.has_unknown_kwargs
            ):
                continue
            block = script.statement(call.node)
            if not isinstance(block, (ast.With, ast.AsyncWith)):
                continue
            change = next(_find_writes(script, block, call.node.args[0]), None)
            if change is None:
                continue
            edit = script.setting_keyword(call, "modifier_rank", "0")
            yield self.finding(
                self.texts["cause"].format(
                    change=source_text(script, change, 60), gather=source_text(script, call.node, 60)
                ),
                spans=(call.place.span(), script.place(change).span(translated("changed here")), stage_span(run)),
                fixes=self.fix(translated("Pass modifier_rank=0"), edit, safe=False) if edit else None,
            )


def _find_writes(script: Script, block: ast.With | ast.AsyncWith, gathered_expr: ast.expr) -> Iterator[ast.AST]:
    """The statements and calls in a ``with`` block that write to the parameters it has gathered."""
    names = {each.id for each in ast.walk(gathered_expr) if isinstance(each, ast.Name)}
    names.discard("self")
    paths = [each for each in ast.walk(gathered_expr) if isinstance(each, ast.Attribute)]
    for loop in ast.walk(block):
        if isinstance(loop, ast.For) and names & {
            each.id for each in ast.walk(loop.iter) if isinstance(each, ast.Name)
        }:
            names |= {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    for statement in block.body:
        for node in ast.walk(statement):
            each = _written_target(script, node)
            while isinstance(each, (ast.Attribute, ast.Subscript)) and not any(same_code(each, one) for one in paths):
                each = each.value
            if isinstance(each, ast.Attribute) or (isinstance(each, ast.Name) and each.id in names):
                yield node


def _written_target(script: Script, node: ast.AST) -> ast.expr | None:
    """The expression that a statement or call writes to in place; None if it doesn't."""
    if isinstance(node, ast.Call):
        if script.call_at(node).name.startswith("torch.nn.init."):
            return node.args[0] if node.args else None
        return node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr in _IN_PLACE_METHODS else None
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    for target in targets:
        if isinstance(target, ast.Subscript) or (isinstance(target, ast.Attribute) and target.attr == "data"):
            return target
    return None
