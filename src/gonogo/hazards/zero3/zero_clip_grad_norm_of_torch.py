import ast

from gonogo.hazards.facts.training_framework import try_edit
from gonogo.hazards.facts.zero_usage import (
    dotted_name_or_empty,
    engine_calls,
    find_module_of_parameters,
    is_engine,
    is_trained,
    is_under_zero_condition,
    root_of,
    source_text,
    stage_span,
)
from gonogo.hazards.rule import Call, Field, Findings, Fix, Hazard, Run, Script, Text, translated


class ZeroClipGradNormOfTorch(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """torch's gradient clipping, applied to parameters that an engine trains."""
        stage = run.zero_stage
        if stage not in (1, 2, 3) or b"clip_grad_" not in script.source.data or run.config is None:
            return
        if next(engine_calls(run), None) is None:
            return
        for call in script.calls("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_"):
            parameters = call.node.args[0] if call.node.args else call.keyword_node("parameters")
            if parameters is None or is_under_zero_condition(script, call.node):
                continue
            root = root_of(find_module_of_parameters(script, parameters) or parameters)
            if not is_engine(script, root) and not is_trained(script, dotted_name_or_empty(root)):
                continue
            clipping = run.config.get("gradient_clipping")
            limit = _max_norm(call)
            yield self.finding(
                self.texts["cause"].format(
                    code=source_text(script, call.node), stage=stage, instead=_describe_replacement(clipping)
                ),
                cure=self._choose_cure(clipping, limit),
                spans=(
                    call.place.span(),
                    clipping.span(translated("this setting clips the gradients"))
                    if clipping.number
                    else stage_span(run),
                ),
                fixes=self._build_fixes(script, run, call, limit),
            )

    def _build_fixes(self, script: Script, run: Run, call: Call, limit: float | None) -> tuple[Fix, ...]:
        statement = script.statement(call.node)
        config = run.config
        if config is None or not isinstance(statement, ast.Expr) or statement.value is not call.node:
            return ()
        drop = script.removing_statement(statement)
        if drop is None:
            return ()
        clipping = config.get("gradient_clipping")
        if clipping.number:
            return (self.fix(translated("Drop the clip_grad_norm_ call"), drop),)
        if limit is None or clipping.unknown:
            return ()
        edit = try_edit(lambda: config.inserting("gradient_clipping", value=limit))
        title = translated("Let DeepSpeed clip at {limit}").format(limit=limit)
        return (self.fix(title, drop, edit, safe=False),) if edit is not None else ()

    def _choose_cure(self, clipping: Field, limit: float | None) -> Text:
        """If the config clips, drop the call; otherwise set the call's limit in the config."""
        if not clipping.number:
            return translated('Set "gradient_clipping": {limit} in the DeepSpeed config, and drop the call').format(
                limit=1.0 if limit is None else limit
            )
        if limit in (None, clipping.number):
            return translated("Drop the clip_grad_norm_ call")
        return self.texts["drop_call_cure"].format(limit=limit)


def _max_norm(call: Call) -> float | None:
    """The ``max_norm`` of a call of ``clip_grad_norm_``; None if unknown."""
    if call.method != "clip_grad_norm_":
        return None
    return (call.argument(1) if len(call.node.args) > 1 else call.keyword("max_norm")).number


def _describe_replacement(clipping: Field) -> Text:
    """A sentence that says what clips the gradients instead of the call."""
    if clipping.number:
        return Text(
            f"The config's gradient_clipping ({clipping.value}) does.",
            f"起作用的是配置中的 gradient_clipping（{clipping.value}）。",
        )
    if clipping.unknown:
        return translated("Only the config's gradient_clipping clips them.")
    return translated("The config sets no gradient_clipping, so nothing clips them.")
