import ast

from gonogo.hazards.facts.how_it_trains import edit_of
from gonogo.hazards.facts.zero_files import (
    engine_calls,
    is_engine,
    is_trained,
    name_of,
    root_of,
    stage_span,
    tests_the_stage,
    text_of,
)
from gonogo.hazards.rule import Call, Certainty, Field, Findings, Fix, Hazard, Run, Script, Severity, Text


class ZeroClipGradNormOfTorch(Hazard):
    """`torch.nn.utils.clip_grad_norm_` in a loop that ZeRO steps.

    ## What happens
    The run goes on, but gradients are never clipped, and the norm that the call returns is 0: losses spike as if
    there were no limit.

    ## Why
    ZeRO takes the gradients out of `p.grad` during the backward (all stages from 1), keeps them in buffers of its
    own and leaves None behind. torch finds nothing to clip.

    ## Cure
    Set `"gradient_clipping": 1.0` in the DeepSpeed config, where `engine.step` clips, and drop the call;
    `engine.get_global_grad_norm()` tells the norm.

    ## When it is safe
    Without ZeRO; or `accelerator.clip_grad_norm_`, which leaves it to DeepSpeed.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/6480: clipping is asked for under ZeRO
    - https://github.com/deepspeedai/DeepSpeed/issues/6767: a maintainer: clipping is handled in ZeRO's optimizers
    - https://www.deepspeed.ai/docs/config-json/: gradient_clipping
    """

    name = "zero-clip-grad-norm-of-torch"
    title = Text(
        en="torch's gradient clipping does nothing beside a ZeRO engine",
        zh="在 ZeRO 引擎旁调用 torch 的梯度裁剪不起作用",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """torch's clipping of the parameters that an engine trains."""
        stage = run.zero_stage
        if stage not in (1, 2, 3) or b"clip_grad_" not in script.source.data or run.config is None:
            return
        if next(engine_calls(run), None) is None:
            return
        for call in script.calls("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_"):
            parameters = call.node.args[0] if call.node.args else call.keyword_node("parameters")
            root = root_of(parameters) if parameters is not None else None
            if root is None or tests_the_stage(script, call.node):
                continue
            if not is_engine(script, root) and not is_trained(script, name_of(root)):
                continue
            clipping = run.config.get("gradient_clipping")
            yield self.finding(
                Text(
                    en="`{code}` clips nothing: ZeRO-{stage} has taken the gradients out of p.grad by then. {instead}",
                    zh="`{code}` 不会裁剪任何梯度：此时 ZeRO-{stage} 已把梯度移出 p.grad。{instead}",
                ).format(
                    code=text_of(script, call.node),
                    stage=stage,
                    instead=Text(
                        f"The config's gradient_clipping ({clipping.value}) does.",
                        f"起作用的是配置中的 gradient_clipping（{clipping.value}）。",
                    )
                    if clipping.number
                    else Text(
                        "The config sets no gradient_clipping, so nothing does.",
                        "配置中没有 gradient_clipping，因此没有任何裁剪。",
                    ),
                ),
                certainty=Certainty.CERTAIN,
                severity=Severity.WARNING,
                cure=(
                    Text(
                        'Set "gradient_clipping" in the DeepSpeed config, and drop the call',
                        '在 DeepSpeed 配置中设置 "gradient_clipping"，并去掉该调用',
                    ),
                ),
                spans=(call.place.span(), clipping.span(Text("what clips", "真正的裁剪")) or stage_span(run)),
                fixes=self._fixes(script, run, call, clipping),
            )

    def _fixes(self, script: Script, run: Run, call: Call, clipping: Field) -> tuple[Fix, ...]:
        statement = script.statement(call.node)
        config = run.config
        if config is None or not isinstance(statement, ast.Expr) or statement.value is not call.node:
            return ()
        drop = script.removing_statement(statement)
        if drop is None:
            return ()
        if clipping.number:
            return (self.fix(Text("Drop the call", "去掉该调用"), drop),)
        limit = (call.argument(1) if len(call.node.args) > 1 else call.keyword("max_norm")).number
        if limit is None or "norm" not in call.method or clipping.unknown:
            return ()
        edit = edit_of(lambda: config.inserting("gradient_clipping", value=limit))
        title = Text("Let DeepSpeed clip at {limit}", "由 DeepSpeed 以 {limit} 裁剪").format(limit=limit)
        return (self.fix(title, drop, edit, safe=False),) if edit is not None else ()
