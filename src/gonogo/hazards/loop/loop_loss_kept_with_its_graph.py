import ast
from collections import defaultdict

from gonogo.evidence.script.identifiers import contains_words, is_tensor_gather, last_name, same_code, uses_name
from gonogo.hazards.rule import Call, Findings, Hazard, Run, Script, translated

_MICRO_BATCH_WORDS = ("accum", "accumulate", "accumulation", "micro", "microbatch", "microbatches", "chunk", "chunks")
_REDUCING_WORDS = ("reduce", "reduced", "allreduce", "gather", "allgather")


class LoopLossKeptWithItsGraph(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``total += loss`` in the loop that calls backward on the loss, with a sum that never gets a backward."""
        if b"backward(" not in script.source.data or b"+= " not in script.source.data:
            return
        trained = _BackwardTargets(script)
        assigned: dict[ast.AST, _LoopAssignments] = {}
        for statement in script.nodes(ast.AugAssign):
            value, loop = statement.value, script.enclosing_loop(statement)
            if not isinstance(statement.op, ast.Add) or not isinstance(value, ast.Name) or loop is None:
                continue
            total = statement.target
            if value.id not in trained.by_name or total in trained or isinstance(total, ast.Subscript):
                continue
            run_here = next((call for call in trained.by_name[value.id] if _is_inside(script, call.node, loop)), None)
            if run_here is None:
                continue
            if loop not in assigned:
                assigned[loop] = _LoopAssignments(loop)
            if (
                _runs_over_micro_batches(loop)
                or assigned[loop].has_target(total)
                or value.id in assigned[loop].names_without_graph
                or any(contains_words(name.rpartition(".")[2], "no_grad") for name in script.with_contexts(statement))
            ):
                continue
            edit = script.replacing(value, f"{value.id}.detach()")
            yield self.finding(
                self.texts["cause"].format(total=ast.unparse(total), loss=value.id),
                cure=translated("Add {loss}.detach(), or {loss}.item()").format(loss=value.id),
                spans=(script.place(statement).span(), run_here.place.span(translated("the loss used for training"))),
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


class _BackwardTargets:
    """The losses on which a script calls backward."""

    def __init__(self, script: Script) -> None:
        self.by_name: dict[str, list[Call]] = defaultdict(list)
        self._others: list[ast.expr] = []
        for call in script.calls("*.backward"):
            for node in _backward_targets(call):
                if isinstance(node, ast.Name):
                    self.by_name[node.id].append(call)
                else:
                    self._others.append(node)

    def __contains__(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.by_name
        return any(same_code(node, other) for other in self._others)


class _LoopAssignments:
    """The variables that the statements of a loop assign."""

    def __init__(self, loop: ast.AST) -> None:
        self.names_without_graph: set[str] = set()
        """Names that are ever assigned a plain number, or a tensor without a graph."""
        self._names: set[str] = set()
        self._others: list[ast.expr] = []
        for node in ast.walk(loop):
            if isinstance(node, ast.Assign):
                names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                self._names |= names
                self._others += [target for target in node.targets if not isinstance(target, ast.Name)]
                if _has_no_graph(node.value):
                    self.names_without_graph |= names

    def has_target(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._names
        return any(same_code(node, other) for other in self._others)


def _is_inside(script: Script, node: ast.AST, loop: ast.AST) -> bool:
    return any(parent is loop for parent in script.ancestors(node))


def _runs_over_micro_batches(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether a loop covers only a few micro-batches, so that the graphs of its sum stay small."""
    return uses_name(loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else loop.test, *_MICRO_BATCH_WORDS)


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
    if name in ("item", "detach", "tolist", "float") or contains_words(name, "no_grad"):
        return True
    if contains_words(name, *_REDUCING_WORDS) and not is_tensor_gather(value):
        return True
    return isinstance(value.func, (ast.Attribute, ast.Call)) and _has_no_graph(
        value.func.value if isinstance(value.func, ast.Attribute) else value.func
    )
