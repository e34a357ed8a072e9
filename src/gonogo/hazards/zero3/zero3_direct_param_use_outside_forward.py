import ast

from gonogo.evidence.script.parameters import parameter_uses
from gonogo.hazards.facts.zero_usage import (
    dotted_name_or_empty,
    is_before_deepspeed_initialize,
    is_behind_option,
    is_engine,
    is_inside_module_class,
    is_trained,
    is_under_zero_condition,
    root_of,
    source_text,
    stage_span,
)
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Run, Script, Text, translated
from gonogo.hazards.zero3._empty_parameter_uses import EmptyParameterCause, find_empty_parameter_uses

_MATMUL_FUNCTIONS = ("linear", "embedding", "matmul", "mm", "bmm", "einsum", "@")
_COMPUTES = (*_MATMUL_FUNCTIONS, "normalize", "cosine_similarity", "mse_loss", "cat", "stack", "dist", "cdist", "addmm")


class Zero3DirectParamUseOutsideForward(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A weight that is passed to an operator of torch outside of every module's forward."""
        if run.zero_stage != 3:
            return
        for use in script.cached_result(parameter_uses):
            if (
                use.kind != "passed"
                or use.gathered
                or use.registered
                or use.own
                or is_inside_module_class(script, use.node)
            ):
                continue
            operator = _torch_operator_name(script, use.node)
            if (
                operator is None
                or is_under_zero_condition(script, use.node)
                or is_before_deepspeed_initialize(script, use.node)
            ):
                continue
            root = root_of(use.module)
            function = script.enclosing_function(use.node)
            handed = function is not None and function.name == "compute_loss" and dotted_name_or_empty(root) == "model"
            sure = not is_behind_option(script, use.node) and (
                handed or is_trained(script, dotted_name_or_empty(root)) or is_engine(script, root)
            )
            yield self.finding(
                self.texts["cause_in_script"].format(
                    code=source_text(script, use.node), module=source_text(script, use.module), operator=operator
                ),
                certainty=Certainty.CERTAIN if sure and operator in _MATMUL_FUNCTIONS else Certainty.LIKELY,
                spans=(script.place(use.node).span(), stage_span(run)),
                confirm=() if sure else (translated("The module belongs to the model that is trained"),),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """An error about an empty parameter, most certain if the frame that reads it isn't one of torch's layers."""
        for use in find_empty_parameter_uses(log):
            certainty = use.causes.get(EmptyParameterCause.DIRECT)
            if certainty is None:
                continue
            place = use.user_code_location
            yield self.log_finding(
                use.evidence,
                self.texts["cause_in_log"].format(
                    place=Text(f" It is read at {place}.", f"读取位置：{place}。") if place else ""
                ),
                cure=(
                    self.texts["cure"],
                    translated("Outside a forward, gather it: with deepspeed.zero.GatheredParameters([weight])"),
                ),
                certainty=certainty,
            )


def _torch_operator_name(script: Script, node: ast.expr) -> str | None:
    """The torch operator that computes with the weight; None if there is none."""
    if isinstance(node, ast.BinOp):
        return "@" if isinstance(node.op, ast.MatMult) else None
    if isinstance(node, ast.Call):
        name = script.call_at(node).name
        last = name.rpartition(".")[2]
        return last if name.startswith("torch.") and last in _COMPUTES else None
    return None
