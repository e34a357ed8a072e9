import ast

from gonogo.hazards.facts.zero_usage import (
    TRAINERS,
    dotted_name_or_empty,
    is_inside_module_class,
    is_under_zero_condition,
    stage_span,
)
from gonogo.hazards.rule import FailureLog, Findings, Hazard, Run, Script, translated
from gonogo.hazards.zero3._empty_parameter_uses import EmptyParameterCause, find_empty_parameter_uses
from gonogo.hazards.zero3._loading import assigned_variable, is_passed_to, is_zero3_configured_at, model_loads

_WRAP = (
    *(
        "deepspeed.initialize",
        "*.prepare",
        "*.prepare_model",
        "*.prepare_deepspeed",
        "*._prepare_deepspeed",
        *TRAINERS,
        "*.init_inference",
    ),
    *("*.get_peft_model", "*.prepare_model_for_kbit_training", "super.__init__", "*.__init__"),
)


class Zero3PartitionedWeightUsedOutsideEngine(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A second model, loaded when transformers knows about ZeRO-3, that is called without its own engine."""
        if run.zero_stage != 3:
            return
        for call in model_loads(script):
            name = assigned_variable(script, call.node)
            if name is None or is_inside_module_class(script, call.node) or call.keyword("quantization_config").known:
                continue
            if any("zero3_init_context_manager" in one for one in script.with_contexts(call.node)):
                continue
            of_trainer = script.enclosing_class(call.node)
            known = is_zero3_configured_at(script, call.node) or (
                of_trainer is not None and of_trainer.is_subclass("*Trainer")
            )
            if not known or is_under_zero_condition(script, call.node) or is_passed_to(script, name, *_WRAP):
                continue
            use = _find_model_call(script, name, call.line)
            if use is None:
                continue
            yield self.finding(
                self.texts["cause_in_script"].format(name=name),
                spans=(
                    call.place.span(translated("loaded under zero.Init")),
                    script.place(use).span(translated("called here")),
                    stage_span(run),
                ),
                confirm=translated("No code elsewhere passes it to DeepSpeed"),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """An empty weight in a model other than the trained one, or in one that the log doesn't identify."""
        for use in find_empty_parameter_uses(log):
            certainty = use.causes.get(EmptyParameterCause.OUTSIDE_ENGINE)
            if certainty is None:
                continue
            yield self.log_finding(use.evidence, certainty=certainty, confirm=self.texts["confirm"])


def _find_model_call(script: Script, name: str, after: int) -> ast.Call | None:
    """The first call of the model after a line: ``name(…)``, ``name.generate(…)`` or ``name.forward(…)``."""
    for node in script.nodes(ast.Call):
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in ("generate", "forward"):
            func = func.value
        if isinstance(func, (ast.Name, ast.Attribute)) and dotted_name_or_empty(func) == name and node.lineno > after:
            return node
    return None
