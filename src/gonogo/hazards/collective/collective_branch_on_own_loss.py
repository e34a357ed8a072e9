import ast
import re
from collections import Counter
from collections.abc import Iterator

from gonogo.hazards.rule import Call, Certainty, Finding, Findings, Hazard, Run, Script, Severity, Text

Loop = ast.For | ast.AsyncFor | ast.While
Leaving = ast.Break | ast.Return | ast.Continue

_MANY_RANKS = (b"init_process_group", b"deepspeed", b"Accelerator(", b"DistributedDataParallel", b"fully_shard")
_AGREED = re.compile(r"reduce|gather|broadcast|check_trigger|synchroni[sz]e_|sync_")
"""Words of calls by which ranks agree on a value: `all_reduce`, `accelerator.gather`, `reduce_mean` ..."""
_OF_A_VALUE = {
    "item",
    "float",
    "isnan",
    "isinf",
    "isfinite",
    "abs",
    "detach",
    "cpu",
    "any",
    "all",
    "bool",
    "mean",
    "sum",
}
"""Calls that make a test's answer out of the loss alone."""


_MAX_BACKWARDS = 8
"""Of one loop; for each of them all of the loop is looked through."""


class CollectiveBranchOnOwnLoss(Hazard):
    """A rank leaves the training loop, or skips its backward, because of its own loss.
    ## What happens
    The run trains for hours and then stands still: one rank met a NaN (or a loss low enough to stop) and left the step;
    the others wait in the backward's all-reduce, until the time-out (NCCL: 10 minutes).
    ## Why
    Each rank computes the loss of its own samples. `if torch.isnan(loss): continue` or `if loss < best: break` goes one
    way on one rank and the other way on the rest, while backward and step are collectives, which all ranks have to
    make.
    ## Example
    ```python
    if torch.isnan(loss):                                  # wrong: true on one rank, false on the rest
        continue

    bad = torch.isnan(loss).float()                        # right: all ranks agree first
    dist.all_reduce(bad, op=dist.ReduceOp.MAX)
    if bad:
        continue
    ```
    ## Cure
    Let the ranks agree first: `flag = torch.isnan(loss).float(); dist.all_reduce(flag, op=dist.ReduceOp.MAX)`, and
    branch on the flag. With Accelerate: `accelerator.set_trigger()` where it holds, `if accelerator.check_trigger():`
    for all.
    ## When it is safe
    Where the loss is the same on all ranks (it was reduced before), and on one GPU.
    ## Sources
    - https://github.com/pytorch/audio/issues/3749: training hangs when one rank's loss is NaN and it returns early
    - https://github.com/Lightning-AI/pytorch-lightning/issues/379: early stopping on some ranks, the others wait
    - https://github.com/huggingface/accelerate/pull/1940: set_trigger and check_trigger, made for this
    """

    name = "collective-branch-on-own-loss"
    title = Text(
        "One rank may leave the step because of its own loss, and the others wait for it",
        "某个 rank 可能因自己的 loss 离开这一步，其他 rank 会一直等待",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """``break``, ``return`` or, before the backward, ``continue`` under a test of the loss that is trained on."""
        data = script.source.data
        if run.world_size == 1 or b"backward(" not in data or not any(word in data for word in _MANY_RANKS):
            return
        looked_at: Counter[Loop] = Counter()
        agreed: dict[Loop, bool] = {}
        for call in script.calls("*.backward"):
            loop = script.enclosing_loop(call.node)
            loss = _loss_of(call)
            if loop is None or loss is None:
                continue
            looked_at[loop] += 1
            if loop not in agreed:
                agreed[loop] = _AGREED.search(ast.unparse(loop)) is not None
            if agreed[loop] or looked_at[loop] > _MAX_BACKWARDS:
                continue
            own = _made_of(loop, loss)
            for test, leaving in _exits(script, loop, call.node):
                if _is_of(test, own):
                    yield self._finding(script, call, test, leaving)
                    break

    def _finding(self, script: Script, call: Call, test: ast.expr, leaving: Leaving) -> Finding:
        return self.finding(
            Text(
                "{test} is asked of each rank's own loss: a rank for which it holds leaves by {leaving}, and the "
                "others wait for it in the backward.",
                "{test} 针对每个 rank 自己的 loss：满足条件的 rank 执行 {leaving}，其他 rank 在反向传播中等待它。",
            ).format(test=script.place(test).text, leaving=type(leaving).__name__.lower()),
            severity=Severity.WARNING,
            certainty=Certainty.LIKELY,
            cure=Text(
                "Let all ranks agree before the branch: all_reduce the condition (ReduceOp.MAX), or Accelerate's "
                "set_trigger() and check_trigger()",
                "分支前让所有 rank 达成一致：对该条件做 all_reduce（ReduceOp.MAX），或用 Accelerate 的 set_trigger() 与"
                " check_trigger()",
            ),
            spans=(
                script.place(test).span(),
                call.place.span(Text("all ranks have to come here", "所有 rank 都必须执行到这里")),
            ),
        )


def _loss_of(call: Call) -> str | None:
    """The name that backward is called on: ``loss.backward()``, ``engine.backward(loss)``."""
    node = call.node.args[0] if call.node.args else call.receiver
    if isinstance(node, ast.Call) and node.args:  # scaler.scale(loss).backward()
        node = node.args[0]
    return node.id if isinstance(node, ast.Name) else None


def _made_of(loop: Loop, loss: str) -> set[str]:
    """The loss, and what the loop makes of it alone: ``value = loss.item()``."""
    own = {loss}
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            inside = node.value.value if isinstance(node.value, ast.Subscript) else node.value
            if isinstance(inside, (ast.Call, ast.UnaryOp, ast.Compare)) and _is_of(inside, own):
                own.add(node.targets[0].id)
    return own


def _exits(script: Script, loop: Loop, backward: ast.Call) -> Iterator[tuple[ast.expr, Leaving]]:
    """Tests of this loop's own ``if`` statements under which an iteration or the loop is left."""
    for test in (node for node in ast.walk(loop) if isinstance(node, ast.If)):
        if script.enclosing_loop(test) is not loop or any(node is backward for node in ast.walk(test)):
            continue
        for node in test.body:
            late = isinstance(node, ast.Continue) and node.lineno > backward.lineno
            if isinstance(node, (ast.Break, ast.Return, ast.Continue)) and not late:
                yield test.test, node


def _is_of(test: ast.AST, own: set[str]) -> bool:
    """Whether a test is of the value of one of those names, by nothing but arithmetic and comparisons."""
    if isinstance(test, ast.Compare) and any(
        isinstance(one, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for one in test.ops
    ):
        return False  # `loss is None` is a matter of the program, not of numbers
    called = [node for node in ast.walk(test) if isinstance(node, ast.Call)]
    names = {node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func) for node in called}
    return names <= _OF_A_VALUE and any(isinstance(node, ast.Name) and node.id in own for node in ast.walk(test))
