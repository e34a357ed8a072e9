import ast

from gonogo.hazards.facts.zero_files import (
    is_engine,
    is_trained,
    name_of,
    parameters_of,
    root_of,
    stage_span,
    tests_the_stage,
    text_of,
)
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Severity, Text


class ZeroGradientReadFromParameter(Hazard):
    """A loop reads `p.grad` of parameters that a ZeRO engine trains.
    ## What happens
    Every `p.grad` is None: "'NoneType' object has no attribute 'norm'", or gradient norms and masks that are
    silently empty.
    ## Why
    ZeRO (from stage 1) reduces gradients during the backward into buffers of its own, and sets `p.grad` to None.
    ## Example
    ```python
    norms = [p.grad.norm() for p in engine.parameters()]    # wrong: p.grad is None
    norms = [safe_get_full_grad(p).norm() for p in engine.parameters()]    # right, on all ranks
    ```
    ## Cure
    Read gradients after `engine.backward` and before `engine.step` by `deepspeed.utils.safe_get_full_grad(p)`, on
    all ranks; change them by `safe_set_full_grad`. The norm is `engine.get_global_grad_norm()`.
    ## When it is safe
    ZeRO off; hooks on tensors (`p.register_hook`), which see each gradient as it comes.
    ## Sources
    - https://github.com/huggingface/transformers/issues/11850: all gradients are None after the backward
    - https://github.com/deepspeedai/DeepSpeed/issues/1098: why, and safe_get_full_grad as the answer
    - https://deepspeed.readthedocs.io/en/latest/zero3.html: the functions for reading and changing gradients
    """

    name = "zero-gradient-read-from-parameter"
    title = Text("Gradients are read from p.grad, which ZeRO empties", "从 p.grad 读取梯度，而 ZeRO 会清空它")

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
            loop = _loop_of(script, node.value)
            module = parameters_of(script, loop) if loop is not None else None
            if loop is None or module is None or loop.lineno in seen or tests_the_stage(script, node):
                continue
            root = root_of(module)
            if not is_engine(script, root) and not is_trained(script, name_of(root)):
                continue
            function = script.enclosing_function(node)
            before = [one for one in script.calls("*.backward") if one.line < node.lineno]
            if not any(script.enclosing_function(one.node) is function for one in before):
                continue
            seen.add(loop.lineno)
            yield self.finding(
                Text(
                    "`{code}` is empty for every parameter: ZeRO-{stage} has moved the gradients into its own buffers "
                    "during the backward.",
                    "对每个参数，`{code}` 都是空值：ZeRO-{stage} 在反向时已把梯度移入自己的缓冲区。",
                ).format(code=text_of(script, node), stage=run.zero_stage),
                certainty=Certainty.CERTAIN,
                severity=Severity.WARNING,
                cure=Text(
                    "Use deepspeed.utils.safe_get_full_grad(p) on all ranks, or engine.get_global_grad_norm()",
                    "在所有 rank 上使用 deepspeed.utils.safe_get_full_grad(p)，或 engine.get_global_grad_norm()",
                ),
                spans=(
                    script.place(node).span(),
                    script.place(loop).span(Text("the engine's parameters", "引擎的参数")),
                    stage_span(run),
                ),
            )


def _loop_of(script: Script, name: ast.Name) -> ast.expr | None:
    """What the loop or comprehension goes over that a name is the variable of."""
    for each in script.ancestors(name):
        loops = each.generators if isinstance(each, (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)) else []
        for loop in [each] if isinstance(each, ast.For) else loops:
            if any(isinstance(one, ast.Name) and one.id == name.id for one in ast.walk(loop.target)):
                return loop.iter
    return None
