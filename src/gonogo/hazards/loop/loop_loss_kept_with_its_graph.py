import ast

from gonogo.evidence.script.identifiers import is_tensor_gather, last_name, same_code, says, uses_name
from gonogo.hazards.rule import Call, Findings, Hazard, Run, Script, Severity, translated

_MICRO_BATCH_WORDS = ("accum", "accumulate", "accumulation", "micro", "microbatch", "microbatches", "chunk", "chunks")
_REDUCING_WORDS = ("reduce", "reduced", "allreduce", "gather", "allgather")


class LoopLossKeptWithItsGraph(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``total += loss`` in the loop that calls backward on the loss, with a sum that never gets a backward."""
        if b"backward(" not in script.source.data or b"+= " not in script.source.data:
            return
        backed = list(script.calls("*.backward"))
        trained = [node for call in backed for node in _backward_targets(call)]
        for statement in script.nodes(ast.AugAssign):
            value, loop = statement.value, script.enclosing_loop(statement)
            if not isinstance(statement.op, ast.Add) or not isinstance(value, ast.Name) or loop is None:
                continue
            total = statement.target
            if (
                not _contains_same_code(value, trained)
                or _contains_same_code(total, trained)
                or isinstance(total, ast.Subscript)
            ):
                continue
            run_here = [
                call
                for call in backed
                if _contains_same_code(value, _backward_targets(call)) and _is_inside(script, call.node, loop)
            ]
            if (
                _is_reset_or_short(loop, total)
                or not run_here
                or _is_assigned_plain_value(script, loop, value.id)
                or any(says(name.rpartition(".")[2], "no_grad") for name in script.with_contexts(statement))
            ):
                continue
            edit = script.replacing(value, f"{value.id}.detach()")
            yield self.finding(
                translated(
                    "{total} accumulates {loss} with its graph in the training loop: each step's graph stays in memory."
                ).format(total=ast.unparse(total), loss=value.id),
                severity=Severity.WARNING,
                cure=translated("Add {loss}.detach(), or {loss}.item()").format(loss=value.id),
                spans=(
                    script.place(statement).span(),
                    run_here[0].place.span(translated("the loss used for training")),
                ),
                fixes=self.fix(translated("Add the value without its graph"), edit) if edit is not None else None,
            )


def _backward_targets(call: Call) -> list[ast.expr]:
    """The name that backward is called on: ``loss.backward()``, ``engine.backward(loss)``."""
    found: list[ast.expr] = [one for one in call.node.args[:1] if isinstance(one, (ast.Name, ast.Attribute))]
    if not call.node.args and call.receiver is not None:
        receiver: ast.expr = call.receiver
        if isinstance(receiver, ast.Call) and receiver.args:  # scaler.scale(loss).backward()
            receiver = receiver.args[0]
        if isinstance(receiver, (ast.Name, ast.Attribute)):
            found.append(receiver)
    return found


def _contains_same_code(node: ast.expr, others: list[ast.expr]) -> bool:
    return any(same_code(node, other) for other in others)


def _is_inside(script: Script, node: ast.AST, loop: ast.AST) -> bool:
    return any(parent is loop for parent in script.ancestors(node))


def _is_reset_or_short(loop: ast.For | ast.AsyncFor | ast.While, total: ast.expr) -> bool:
    """Whether the sum is reset within the loop or covers only a few micro-batches, so its graph stays small."""
    if uses_name(loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else loop.test, *_MICRO_BATCH_WORDS):
        return True
    return any(
        same_code(target, total) for node in ast.walk(loop) if isinstance(node, ast.Assign) for target in node.targets
    )


def _is_assigned_plain_value(script: Script, loop: ast.AST, name: str) -> bool:
    """Whether the loop ever assigns a plain number, or a tensor without a graph, to the name."""
    return any(
        isinstance(node, ast.Assign)
        and any(isinstance(one, ast.Name) and one.id == name for one in node.targets)
        and _has_no_graph(node.value)
        for node in ast.walk(loop)
    )


def _has_no_graph(value: ast.expr) -> bool:
    """Whether a value has no autograd graph: ``.item()``, ``.detach()``, ``float(…)``, and results of these alone."""
    if isinstance(value, ast.Constant):
        return True
    if isinstance(value, ast.BinOp):
        # The divisor or factor of a plain number is usually a count or a weight.
        scaled = isinstance(value.op, (ast.Div, ast.Mult)) and not isinstance(value.left, ast.Constant)
        return _has_no_graph(value.left) and (scaled or _has_no_graph(value.right))
    if isinstance(value, ast.UnaryOp):
        return _has_no_graph(value.operand)
    if isinstance(value, ast.IfExp):
        return _has_no_graph(value.body) and _has_no_graph(value.orelse)
    if isinstance(value, ast.Attribute):
        return value.attr == "data" or _has_no_graph(value.value)
    if not isinstance(value, ast.Call):
        return False
    name = last_name(value.func)
    if name in ("item", "detach", "tolist", "float") or says(name, "no_grad"):
        return True
    if says(name, *_REDUCING_WORDS) and not is_tensor_gather(value):
        return True
    return isinstance(value.func, (ast.Attribute, ast.Call)) and _has_no_graph(
        value.func.value if isinstance(value.func, ast.Attribute) else value.func
    )
