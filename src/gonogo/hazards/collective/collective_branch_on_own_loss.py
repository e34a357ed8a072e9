import ast
from collections import Counter
from collections.abc import Iterator

from gonogo.evidence.script.identifiers import contains_words, is_tensor_gather, last_name, split_identifier
from gonogo.hazards.rule import Call, Finding, Findings, Hazard, Run, Script, translated

Loop = ast.For | ast.AsyncFor | ast.While
ExitStatement = ast.Break | ast.Return | ast.Continue

_DISTRIBUTED_MARKERS = (
    b"init_process_group",
    b"deepspeed",
    b"Accelerator(",
    b"DistributedDataParallel",
    b"fully_shard",
)
_SYNCHRONIZING_WORDS = ("reduce", "allreduce", "gather", "allgather", "broadcast", "check_trigger")
"""Parts of names of calls by which ranks agree on a value: `all_reduce`, `accelerator.gather`, `reduce_mean` ..."""
_VALUE_METHODS = {
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
"""Calls with which a test still depends on the loss alone."""


_MAX_BACKWARDS = 4
"""The most backward calls examined in one loop; each needs a walk over the whole loop."""


class CollectiveBranchOnOwnLoss(Hazard):
    """A rank leaves the loop by a test of its own loss, and the other ranks wait for it in a collective."""

    def in_script(self, script: Script, run: Run) -> Findings:
        """``break``, ``return`` or, before the backward, ``continue`` under a test of the loss that is trained on."""
        data = script.source.data
        if run.world_size == 1 or b"backward(" not in data or not any(word in data for word in _DISTRIBUTED_MARKERS):
            return
        backward_counts: Counter[Loop] = Counter()
        agreed: dict[Loop, bool] = {}
        for call in script.calls("*.backward"):
            loop = script.enclosing_loop(call.node)
            loss = _loss_name(call)
            if loop is None or loss is None:
                continue
            backward_counts[loop] += 1
            if loop not in agreed:
                agreed[loop] = any(map(_is_agreement_between_ranks, ast.walk(loop)))
            if agreed[loop] or backward_counts[loop] > _MAX_BACKWARDS:
                continue
            own = _names_computed_from_loss(loop, loss)
            for test, leaving in _conditional_loop_exits(script, loop, call.node):
                if _depends_on_names(test, own):
                    yield self._branch_finding(script, call, test, leaving)
                    break

    def _branch_finding(self, script: Script, call: Call, test: ast.expr, exit_statement: ExitStatement) -> Finding:
        return self.finding(
            self.texts["cause"].format(test=script.place(test).text, leaving=type(exit_statement).__name__.lower()),
            spans=(script.place(test).span(), call.place.span(translated("all ranks must reach this call"))),
        )


def _is_agreement_between_ranks(node: ast.AST) -> bool:
    """Whether a call makes ranks agree on a value: `sync_stop()` does, `torch.cuda.synchronize()` does not."""
    if not isinstance(node, ast.Call) or is_tensor_gather(node):
        return False
    name = last_name(node.func)
    if name[:1].isupper():  # a class: ReduceLROnPlateau
        return False
    return contains_words(name, *_SYNCHRONIZING_WORDS) or not {"sync", "synchronize", "synchronise"}.isdisjoint(
        split_identifier(name)[:-1]
    )


def _loss_name(call: Call) -> str | None:
    """The name that backward is called on: ``loss.backward()``, ``engine.backward(loss)``."""
    node = call.node.args[0] if call.node.args else call.receiver
    if isinstance(node, ast.Call) and node.args:  # scaler.scale(loss).backward()
        node = node.args[0]
    return node.id if isinstance(node, ast.Name) else None


def _names_computed_from_loss(loop: Loop, loss: str) -> set[str]:
    """The name of the loss, and of values that the loop computes from it alone: ``value = loss.item()``."""
    own = {loss}
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            inside = node.value.value if isinstance(node.value, ast.Subscript) else node.value
            if isinstance(inside, (ast.Call, ast.UnaryOp, ast.Compare)) and _depends_on_names(inside, own):
                own.add(node.targets[0].id)
    return own


def _conditional_loop_exits(script: Script, loop: Loop, backward: ast.Call) -> Iterator[tuple[ast.expr, ExitStatement]]:
    """Tests of this loop's own ``if`` statements that end an iteration or the loop."""
    for test in (node for node in ast.walk(loop) if isinstance(node, ast.If)):
        if script.enclosing_loop(test) is not loop or any(node is backward for node in ast.walk(test)):
            continue
        for node in test.body:
            late = isinstance(node, ast.Continue) and node.lineno > backward.lineno
            if isinstance(node, (ast.Break, ast.Return, ast.Continue)) and not late:
                yield test.test, node


def _depends_on_names(test: ast.AST, loss_names: set[str]) -> bool:
    """Whether a test depends on the value of one of those names, by arithmetic and comparisons only."""
    if isinstance(test, ast.Compare) and any(
        isinstance(one, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for one in test.ops
    ):
        return False  # `loss is None` depends on the program, not on the numbers
    called = [node for node in ast.walk(test) if isinstance(node, ast.Call)]
    names = {last_name(node.func) for node in called}
    return names <= _VALUE_METHODS and any(
        isinstance(node, ast.Name) and node.id in loss_names for node in ast.walk(test)
    )
