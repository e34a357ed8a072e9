import ast

from gonogo.hazards.facts.zero_usage import (
    dotted_name_or_empty,
    is_before_deepspeed_initialize,
    is_engine,
    is_in_gathered_parameters,
    is_trained,
    is_under_zero_condition,
    source_text,
    stage_span,
)
from gonogo.hazards.rule import Findings, Hazard, Run, Script
from gonogo.hazards.zero3._loading import assigned_variable, is_zero3_configured_at, model_loads


class Zero3CopyOfPartitionedModel(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``copy.deepcopy`` of the engine, its module, or a model that was loaded under ``zero.Init``."""
        if run.zero_stage != 3 or b"deepcopy" not in script.source.data:
            return
        for call in script.calls("copy.deepcopy"):
            model = call.node.args[0] if call.node.args else None
            if (
                model is None
                or is_in_gathered_parameters(script, call.node)
                or is_under_zero_condition(script, call.node)
            ):
                continue
            if not _is_partitioned(script, call.node, model):
                continue
            yield self.finding(
                self.texts["cause"].format(code=source_text(script, call.node)),
                spans=(call.place.span(), stage_span(run)),
            )


def _is_partitioned(script: Script, call: ast.Call, model: ast.expr) -> bool:
    inner = model.value if isinstance(model, ast.Attribute) and model.attr == "module" else model
    if is_engine(script, inner):
        return True
    name = dotted_name_or_empty(model)
    for load in model_loads(script):
        if assigned_variable(script, load.node) == name and load.line < call.lineno:
            return is_zero3_configured_at(script, load.node) is True
    own = next(script.calls("deepspeed.initialize"), None) is not None
    return own and is_trained(script, name) and not is_before_deepspeed_initialize(script, call)
