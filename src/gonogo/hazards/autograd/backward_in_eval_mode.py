import ast

from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Severity, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class BackwardInEvalMode(LoggedHazard):
    """The model is still in evaluation mode when gradients are computed.
    ## What happens
    "AssertionError: backward pass is invalid for module in evaluation mode" under ZeRO-3 (DeepSpeed before 0.16), or
    "RuntimeError: cudnn RNN backward can only be called in training mode". Elsewhere nothing is said: dropout is off.
    ## Why
    `eval()` was called for an evaluation, a generation or a reference, and no `train()` after it; a trainer that calls
    `train()` only once (Lightning since 2.2); or a gradient is asked for in evaluation mode on purpose. ZeRO-3 kept a
    coordinator of its own for each mode, and cuDNN keeps what the backward of an RNN needs in training mode only.
    ## Example
    ```python
    for step, batch in enumerate(loader):
        loss = model(**batch).loss
        loss.backward()
        if step % 100 == 0:
            model.eval()    # wrong: it stays so
            evaluate(model)
            model.train()    # right, with this line
    ```
    ## Cure
    Call model.train() before the forward whose loss is trained. For gradients in evaluation mode: DeepSpeed 0.16 or
    newer; for an RNN torch.backends.cudnn.enabled = False, or train() with dropout 0.
    ## When it is safe
    Where the module is in training mode in each forward that is trained (`model.training`).
    ## Sources
    - https://github.com/OpenRLHF/OpenRLHF/issues/118: not set back after a generation, ZeRO-3
    - https://github.com/Lightning-AI/pytorch-lightning/issues/19467: since Lightning 2.2, with ZeRO-3
    - https://github.com/deepspeedai/DeepSpeed/pull/6662: one coordinator for both modes lifts the restriction
    - https://github.com/pytorch/pytorch/issues/5878: cuDNN's RNNs
    """

    name = "backward-in-eval-mode"
    title = Text("Gradients are computed while the model is in evaluation mode", "模型处于评估模式时计算梯度")
    log_words = ("is invalid for module in evaluation", "only be called in training mode")
    ends_at = (("zero/parameter_offload.py", "pre_sub_module_backward_function"),)
    signs = (
        Sign(
            Pattern(
                r"backward pass is invalid for module in evaluation mode"
                r"|(?:RNN backward|backward_input) can only be called in training mode"
            ),
            Certainty.CERTAIN,
        ),
    )
    anywhere = True
    cause = Text(
        "A module was in evaluation mode in the forward whose gradients are computed: eval(), and no train() after it.",
        "计算梯度的这次 forward 中，模块处于评估模式：调用了 eval()，之后没有 train()。",
    )
    cures = (
        Text("model.train() before the forward that is trained", "在参与训练的 forward 之前调用 model.train()"),
        Text(
            "Where evaluation mode is meant: DeepSpeed 0.16 or newer; for an RNN torch.backends.cudnn.enabled = False",
            "若本就要在评估模式下求梯度：DeepSpeed 0.16 或更新；RNN 则设 torch.backends.cudnn.enabled = False",
        ),
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """A training loop that sets the model it trains to evaluation mode, in a script that never sets it back."""
        if b".train(" in script.source.data or b".backward(" not in script.source.data:
            return
        for call in script.calls("*.eval"):
            of = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
            loop = script.enclosing_loop(call.node)
            if of is None or loop is None or call.node.args:
                continue
            model = ast.unparse(of)
            calls = [one for one in ast.walk(loop) if isinstance(one, ast.Call)]
            backward = next((one for one in calls if ast.unparse(one.func).endswith(".backward")), None)
            if backward is None or all(ast.unparse(one.func) != model for one in calls):
                continue
            refused = run.zero_stage == 3 and run.environment.within("deepspeed", "<0.16") is True
            yield self.finding(
                Text(
                    "{model} is set to evaluation mode in the training loop and never back: from then on dropout is "
                    "off{refused}.",
                    "训练循环中把 {model} 设为评估模式，之后从未设回：此后 dropout 关闭{refused}。",
                ).format(
                    model=model,
                    refused=Text(
                        ", and this DeepSpeed's ZeRO-3 refuses the backward",
                        "，该版本 DeepSpeed 的 ZeRO-3 会拒绝 backward",
                    )
                    if refused
                    else "",
                ),
                certainty=Certainty.LIKELY,
                severity=Severity.ERROR if refused else Severity.WARNING,
                cure=self.cures[0],
                spans=(call.place.span(), script.place(backward).span(Text("gradients", "梯度"))),
                confirm=Text("model.training is False in the next step", "下一步中 model.training 为 False"),
            )
