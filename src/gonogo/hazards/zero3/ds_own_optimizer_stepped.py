import ast

from gonogo.hazards.facts.zero_files import is_engine, stage_span, text_of
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Severity, Text


class DsOwnOptimizerStepped(Hazard):
    """`optimizer.step()` of torch's optimizer in a loop, and no `engine.step()`.
    ## What happens
    The loss does not fall: the weights are the same after every step.
    ## Why
    `deepspeed.initialize(optimizer=opt)` wraps the optimizer. Under ZeRO the gradients lie in the engine's buffers;
    `opt` by itself sees none, and its step changes nothing. `engine.step()` does the update, the clipping, the
    schedule and the clearing of gradients.
    ## Example
    ```python
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config="ds_config.json")
    optimizer.step()    # wrong: the engine has the gradients
    engine.step()       # right
    ```
    ## Cure
    Call `engine.step()` instead, and drop `optimizer.zero_grad()`.
    ## When it is safe
    Accelerate's own wrapper (`accelerator.prepare(optimizer)`), whose `step` leaves it to the engine.
    ## Sources
    - https://www.deepspeed.ai/getting-started/: the training loop: engine.backward and engine.step
    - https://github.com/huggingface/accelerate/issues/2951: what engine.step does, and that other steps become no-ops
    """

    name = "ds-own-optimizer-stepped"
    title = Text(
        "The optimizer that was given to the engine is stepped itself, and trains nothing",
        "直接 step 了已交给引擎的优化器，什么也训练不到",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """A step of the very optimizer that ``deepspeed.initialize`` was given, where the engine never steps."""
        if run.zero_stage not in (1, 2, 3) or b".step(" not in script.source.data:
            return
        for built in script.calls("deepspeed.initialize"):
            given = built.keyword_node("optimizer")
            if not isinstance(given, ast.Name):
                continue
            for call in script.calls("*.step"):
                receiver = call.receiver
                if not isinstance(receiver, ast.Name) or receiver.id != given.id or call.line < built.line:
                    continue
                kinds = script.kinds_of(receiver)
                if not any(kind.startswith(("torch.optim.", "deepspeed.ops.")) for kind in kinds):
                    continue  # the name holds what deepspeed.initialize gave back
                loop = script.enclosing_loop(call.node)
                if loop is None or _engine_steps(script, loop):
                    continue
                yield self.finding(
                    Text(
                        "`{code}` steps the optimizer past the engine, which has its gradients (ZeRO-{stage}): the "
                        "weights never change.",
                        "`{code}` 绕过引擎直接更新，而梯度在引擎手中（ZeRO-{stage}）：权重永远不变。",
                    ).format(code=text_of(script, call.node), stage=run.zero_stage),
                    certainty=Certainty.CERTAIN,
                    severity=Severity.ERROR,
                    cure=Text(
                        "Call engine.step() instead, and drop optimizer.zero_grad()",
                        "改为调用 engine.step()，并去掉 optimizer.zero_grad()",
                    ),
                    spans=(
                        call.place.span(),
                        script.place(given).span(Text("handed to the engine here", "在此交给引擎")),
                        stage_span(run),
                    ),
                )


def _engine_steps(script: Script, loop: ast.AST) -> bool:
    return any(
        is_engine(script, call.receiver) for call in script.calls("*.step") if script.enclosing_loop(call.node) is loop
    )
